// Package migrations holds the database schema as numbered SQL files, which it applies
// with goose. 00001 has the engine's tables, 00002 those of orders and refunds. A
// released file is never edited; a change is a new file.
package migrations
