// Package migrations holds the database schema as numbered SQL files and
// applies them with goose. It knows no other package of this module.
//
// 00001 has the tables of the engine, 00002 those of orders and refunds. The files
// run in the order of their numbers. A released file is never edited; a change is a
// new file.
package migrations
