// Package pgbouncer holds a configuration of PgBouncer that works with the program,
// pgbouncer.ini, and the settings of its role, role.sql. docs/scaling.md explains them.
// The Go code starts a PgBouncer with these two files for tests, so that they are
// tested.
//
// If DBTEST_PGBOUNCER names the PgBouncer program, package dbtest runs the tests of
// other packages through it. The tests of cmd/orders about the pooler have the build
// tag pgbouncer. make pgbouncer-check finds the program and runs all of them.
//
// The package knows nothing of orders or of the schema.
package pgbouncer
