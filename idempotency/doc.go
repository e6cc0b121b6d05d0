// Package idempotency runs a request at most once per idempotency key, and
// gives every retry the same answer, on nothing but PostgreSQL.
//
// # The idea
//
// A request is a small state machine kept in one row, its key. The states are
// called recovery points. The engine knows two of them, [Started] and
// [Finished]; those in between belong to the [Operation]. Each step of an
// operation makes at most one foreign call and then records its result in one
// transaction, which also moves the recovery point. A process that dies leaves
// the key at its last recovery point, and the next run goes on from there: a
// retry of the client, or anybody who calls [Engine.Resume].
//
//	started ──tx──▶ … ──call, tx──▶ … ──call, tx──▶ finished (response stored)
//
// # What it promises
//
//   - One key, one execution. The claim is one INSERT … ON CONFLICT DO NOTHING
//     that commits together with the first step (R1).
//   - The same key with another request is refused in every state, by a
//     fingerprint over method, path and canonical JSON (R2, R3). See [Canonicalize].
//   - A resumed run uses the stored parameters, never the current request (R4).
//   - One run at a time holds the lease, judged by the database's clock (R8).
//     A run that lost it writes nothing more: each of its transactions asserts
//     the run's own random token (R7).
//   - No transaction and no connection is held while a foreign call runs (R6),
//     and a client that hangs up does not cancel the work (R10).
//   - A response is stored whole, status, headers and exact bytes, and replayed
//     for good (R14). Only [Finish] stores one: a step whose foreign call fails
//     keeps its recovery point and gives the lease back (R11).
//   - A COMMIT whose outcome is unknown is settled by reading the row (R22).
//
// What a foreign call does twice is its own matter: a step must be safe to
// repeat, which is why [Engine] derives stable ids for it (see [KeyID] and
// [DeriveID], R5).
//
// # Waiting
//
// A request for a key that another run holds gets [ErrInProgress], or waits for
// that run's answer if it has set [Request.Wait]. If the run gives the key back
// without an answer, one of those who wait takes over. [Engine.Watch] waits for
// the end of a request without ever taking part in it. Who waits holds neither
// transaction nor connection (R6): one small query, a few times a second and only
// while somebody waits, asks for news of all awaited keys of a process. room.go
// says how.
//
// # Too much to do
//
// A queue that grows makes everybody late, and then all work is in vain: clients
// have given up when their turn comes. So nothing queues up before the engine. A
// [Gate] lets in as many runs as keep the database busy and turns away who is one
// too many, at once and before its key is claimed, with [ErrOverloaded]. What has
// begun goes before what is new: a run that comes back from a foreign call needs
// nobody's leave. Who only looks has a wider gate of its own, and a quarter of the
// connections: stored responses are replayed while new keys are refused. An account
// that has its share gets [ErrShareTaken], and others get in; see [Gate].
//
// # What it costs
//
// One round trip looks the key up, which is all that a replay takes. A step takes
// one more, because the writes that it queues with [Tx.Queue] travel together with
// BEGIN, the claim or the fence, and COMMIT. What was looked up decides nothing: of
// two claims at once, the second fails as a lost fence does.
//
// # How to use it
//
// Apply the idempotency_keys table of package migrations, pass the pool's
// configuration through [postgres.Configure], make one [Engine], and describe the
// work as an [Operation]. The package example shows all of it. The package
// knows nothing of HTTP, of orders or of any provider; it can be lifted out as
// it is.
package idempotency
