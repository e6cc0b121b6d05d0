// Package migrations applies the database schema with goose. A released file is never
// edited; a change is a new file. The template's next number is 00002.
package migrations
