// Package idempotency executes a request at most once per idempotency key and
// replays the stored response to every retry. It needs nothing but PostgreSQL.
//
// A key's row is a small state machine. Its states are called recovery points: the
// engine defines [Started] and [Finished], an [Operation] those in between. A step makes
// at most one external call. One transaction records the result of the call and moves
// the recovery point:
//
//	started ──tx──▶ … ──call, tx──▶ … ──call, tx──▶ finished (response stored)
//
// If a process dies, a retry of the client or the [Completer] continues from the last
// recovery point.
//
// # Guarantees
//
//   - One key executes once: the claim is one INSERT … ON CONFLICT DO NOTHING, which
//     commits with the first step (R1).
//   - The same key with another request is rejected in every state, by a fingerprint
//     of method, path and canonical JSON (R2, R3).
//   - One run at a time holds the lease, by the database's clock (R8). Every
//     transaction asserts the run's token, so a run that lost its lease writes nothing
//     (R7).
//   - An external call holds no transaction and no connection (R6), and a closed
//     client connection does not cancel it (R10).
//   - Only [Finish] stores a response (R14). After a call with an unknown outcome the
//     recovery point stays (R11).
//   - A COMMIT with an unknown outcome is resolved by reading the row (R22).
//
// A later run may repeat an external call, so the call must be safe to repeat.
// [DeriveID] returns ids that all runs of a key share (R5).
//
// # Use
//
// Create the tables of package migrations, configure a pool with [postgres.Configure],
// implement an [Operation] and call [Engine.Do] for each request, as the example does.
// Run a [Completer] and a [Reaper] periodically. After [ErrInProgress] a request may wait
// with [Engine.AwaitTurn] and call Do again. A replay costs one round trip, and a new
// key one more per step.
package idempotency
