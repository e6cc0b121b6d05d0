// Package idempotency executes a request at most once per idempotency key and
// replays the stored response to every retry. It needs only PostgreSQL.
//
// A key's row is a state machine. Its states are recovery points: [Started], [Finished]
// and those of an [Operation] in between. A step makes at most one external call. One
// transaction records the result and moves the recovery point:
//
//	started ──tx──▶ … ──call, tx──▶ … ──call, tx──▶ finished (response stored)
//
// After a crash, a retry of the client or the [Completer] continues from the last
// recovery point.
//
// # Guarantees
//
//   - One key executes once: one INSERT … ON CONFLICT DO NOTHING claims it, and
//     commits with the first step (R1).
//   - The same key with another request is rejected in every state, by a fingerprint
//     of method, path and canonical JSON (R2, R3).
//   - One run at a time holds the lease, by the database's clock (R8). Every
//     transaction asserts the run's token (R7).
//   - An external call holds no transaction and no connection (R6), and a closed
//     client connection does not cancel it (R10).
//   - Only [Finish] stores a response (R14). An unknown outcome keeps the recovery
//     point (R11).
//   - A COMMIT with an unknown outcome is resolved by reading the row (R22).
//
// A later run may repeat an external call, so it must be safe to repeat: [DeriveID]
// returns ids that all runs of a key share (R5).
//
// # Use
//
// Create the tables of package migrations, configure a pool with [postgres.Configure],
// implement an [Operation], and call [Engine.Do] for each request, as the example does.
// Run a [Completer] and a [Reaper] periodically. After [ErrInProgress], a request may
// wait with [Engine.AwaitTurn]. A replay costs one round trip, a new key one more per
// step.
package idempotency
