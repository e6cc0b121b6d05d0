// Package idempotencytest helps to test what is built on package idempotency:
//
//   - [NewPool] and [Account] give a test its database and an account.
//   - [PutKey] puts a key at any recovery point with a lease of any age, and
//     [AgeLease] and [AgeRun] make a run's lease, or the run, old, so that no test
//     sleeps.
//   - A [Meter] counts the round trips and commits of a pool.
//   - [Plans] tells how PostgreSQL runs what a pool's connection has sent.
//   - A [Proxy] between a pool and its server breaks a COMMIT in the ways that
//     leave its outcome unknown.
//
// The package knows the key's table and PostgreSQL's wire protocol, and nothing
// of any operation. Only tests import it.
package idempotencytest
