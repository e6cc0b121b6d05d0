// Package migrations holds the database schema as numbered SQL files and
// applies them with goose. It knows no other package of this module.
//
// The files run in the order of their numbers and are never edited once
// released; a change is a new file. Every table carries account_id first in its
// keys (R20), and the CHECKs state the invariants that code relies on.
package migrations
