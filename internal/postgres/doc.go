// Package postgres configures the program's PostgreSQL sessions and classifies
// the errors of the driver. It knows no table: the engine and every other
// package that runs SQL use it.
package postgres
