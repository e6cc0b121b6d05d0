// Package idempotency executes a request at most once per idempotency key and
// replays the stored response to every retry. It needs nothing but PostgreSQL.
//
// # The idea
//
// A request is a small state machine in one row, its key. The states are called
// recovery points. The engine defines two, [Started] and [Finished]; an
// [Operation] defines those in between. Each step makes at most one external call
// and records its result in one transaction, which also moves the recovery point:
//
//	started ──tx──▶ … ──call, tx──▶ … ──call, tx──▶ finished (response stored)
//
// If a process dies, the next run continues from the last recovery point: a retry
// of the client, or the [Completer].
//
// # What it promises
//
//   - One key executes once. The claim is one INSERT … ON CONFLICT DO NOTHING that
//     commits together with the first step (R1).
//   - The same key with another request is rejected in every state, by a
//     fingerprint of method, path and canonical JSON (R2, R3).
//   - One run at a time holds the lease, by the database's clock (R8). Each
//     transaction asserts the run's random token, so a run that lost its lease
//     writes nothing (R7).
//   - No transaction and no connection is held during an external call (R6), and a
//     closed client connection does not cancel it (R10).
//   - Only [Finish] stores a response, and it is replayed byte for byte (R14). If
//     the outcome of a call is unknown, the recovery point stays (R11).
//   - A COMMIT whose outcome is unknown is resolved by reading the row (R22).
//
// An external call may be repeated after a failure. It must be safe to repeat,
// for which [DeriveID] returns ids that every run of a key shares (R5).
//
// # How to use it
//
// Create the table of package migrations, pass the pool's configuration through
// [postgres.Configure], describe the work as an [Operation], and call [Engine.Do]
// for each request; the example shows all of it. Run a [Completer] and a [Reaper]
// periodically. A request for a key that another run holds gets [ErrInProgress]; it
// may wait with [Engine.AwaitTurn], holding no connection, and call Do again. A
// replay costs one round trip and a new key one more per step: the statements that
// a step queues with [Tx.Queue] are sent together with BEGIN, the fence and COMMIT.
package idempotency
