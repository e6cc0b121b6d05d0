// Package idempotencytest helps to test code that is built on package idempotency:
//
//   - [NewPool] and [Account] give a test its database and an account.
//   - [PutKey] inserts a key at any recovery point with a lease of any age.
//     [AgeLease] and [AgeRun] move a lease or a run back in time, so no test sleeps.
//   - A [Meter] counts the round trips and commits of a pool.
//   - [Plans] returns the plans of the statements that a connection has prepared.
//   - A [Proxy] between a pool and its server breaks a COMMIT in the ways that
//     leave its outcome unknown.
//
// The package knows the table of keys and PostgreSQL's wire protocol, and no
// operation. Only tests import it.
package idempotencytest
