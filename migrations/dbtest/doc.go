// Package dbtest gives each test a PostgreSQL database of its own, with the
// schema of this module.
//
//	func TestSomething(t *testing.T) {
//		t.Parallel()
//		pool := dbtest.New(t)
//		…
//	}
//
// The first call in a test binary starts a private server, in about half a
// second, and makes a template: a database named by the hash of the migration
// files, with all of them applied. Each test gets a copy of it, in about ten
// milliseconds. The server ends with the test binary. A test that cannot have a
// database fails; it is never skipped.
//
// Copies rather than rolled-back transactions, because the code under test opens
// several connections, commits and races; and copies rather than schemas,
// because advisory locks and notifications are per database.
//
// Four variables of the environment help in development:
//
//   - DATABASE_URL names a server to use instead of a private one. Its user must
//     be allowed to create databases; the database it names is left alone. The
//     templates stay on that server, for the next run.
//   - PG_BIN is the folder of the server programs to use, of version 15 or later.
//   - DBTEST_KEEP=1 lets the private server outlive a failed test, so that a
//     person can look at the test's database.
//   - DBTEST_POOLER_URL is the URL of a pooler in front of the server of DATABASE_URL.
//     The pools of the tests connect to it: make pgbouncer-check.
//
// The package knows the schema only as files to apply. Only tests import it.
package dbtest
