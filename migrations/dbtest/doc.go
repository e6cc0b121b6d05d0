// Package dbtest gives each test its own PostgreSQL database with the schema of this
// module: pool := dbtest.New(t).
//
// The first call in a test binary starts a private server and creates a template, a
// database with all migrations, named by their hash. Each test gets a copy in about ten
// milliseconds. A test without a database fails; it is never skipped.
//
// The databases are copies, because the code under test commits on several connections,
// which excludes a rollback. Schemas would share advisory locks and notifications.
//
// Environment variables:
//
//   - DATABASE_URL names a server to use instead of a private one, with a role that
//     may create databases. Its templates are kept for the next run.
//   - PG_BIN is the folder of the private server's programs.
//   - DBTEST_POOLER_URL is the URL of a pooler before the server of DATABASE_URL, for
//     the pools of the tests: make pgbouncer-check.
package dbtest
