// Package idempotencytest helps to test code that is built on package idempotency:
//
//   - [NewPool] and [Account] give a test its database and an account.
//   - [PutKey] inserts a key in any state. [AgeLease] and [AgeRun] move a lease or a
//     run back in time, so no test sleeps.
//   - A [Meter] counts the round trips and commits of a pool, and [Plans] returns the
//     plans of its statements.
//   - A [Proxy] breaks a COMMIT in the ways that leave its outcome unknown.
//
// Only tests import it.
package idempotencytest
