// Package idempotency executes a request at most once per idempotency key and replays the
// stored response to every retry. It needs only PostgreSQL.
//
// A key's row is a state machine, whose states are recovery points. A step makes at most one external
// call that changes something, and one transaction records its result:
//
//	started ──tx──▶ … ──call, tx──▶ … ──call, tx──▶ finished (response stored)
//
// After a crash, a retry or the [Completer] continues from the last recovery point. It may
// repeat the external call, which must be safe to repeat: [DeriveID] returns ids that all
// runs of a key share.
//
//   - One INSERT … ON CONFLICT DO NOTHING claims a key, and commits with the first step.
//   - The same key with another request is rejected in every state.
//   - One run at a time holds the lease, and every transaction asserts its token.
//   - An external call holds no transaction and no connection.
//   - Only [Finish] stores a response; an unknown outcome keeps the recovery point.
//   - A COMMIT with an unknown outcome is resolved by reading the row.
//
// Read engine.go first, which decides what a request does, then operation.go, run.go, which
// executes an operation and has the statements of its lease, and tx.go. keys.go reads keys,
// completer.go and reaper.go are the commands' work, and operator.go has the optional interfaces
// of an operation.
//
// Numbers such as R7 name rules of docs/rules.md.
package idempotency
