// Package pgbouncer holds a configuration of PgBouncer that fits the program,
// pgbouncer.ini, and the settings of its role, role.sql, for everybody to copy;
// docs/growing.md explains them. Its code starts a PgBouncer with these very
// files before a test's server, so that they cannot rot.
//
// Package dbtest lets the tests of other packages run through one when
// DBTEST_PGBOUNCER names the program, and those of cmd/orders have the build tag
// pgbouncer where they are about the pooler itself. Since they need the program,
// they are no part of a plain go test: make pgbouncer-check finds it and runs
// them.
//
// The package knows nothing of orders or of the schema.
package pgbouncer
