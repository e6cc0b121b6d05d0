// Package crash proves that the program survives its own death. It holds no
// code of the program: its tests run the real binary as a child process and
// break it at every point that an outsider can see.
//
// # The idea
//
// All that the program does to the world passes through two doors: round trips
// to PostgreSQL and calls to the payment provider. The harness stands in both:
// a proxy that speaks the database's protocol, and a front before the stand-in
// for Stripe. So it sees every exchange begin and end without one line in the
// program that knows of it. Such an exchange is a boundary. Between two of them
// the program only computes: to die there is to die at one of them.
//
//	           ┌────────────── harness ──────────────┐
//	client ──▶ │ victim ──▶ proxy ──────▶ PostgreSQL │ ◀── bystander, completer
//	           │    └─────▶ front ──────▶ stand-in   │ ◀──────┘
//	           └─────────────────────────────────────┘
//
// A case is a flow, one of its boundaries, a moment (before the exchange, or
// after it and before the program hears of it), a fault and a recovery:
//
//	paid/06-after/kill/retry
//
// means: an order that is to be paid; the sixth exchange, which the file
// testdata/boundaries.txt says is the COMMIT of its first transaction, has just
// succeeded; the process is killed; the client retries. "After" at a COMMIT is
// the commit whose outcome nobody knows (R22), at a confirm it is the charge
// that nobody heard of (R12).
//
// The faults are the kill; the cut of one connection, after which the program
// may try again; the outage, after which the database, or the provider, is gone
// for it; and the pause (SIGSTOP) for longer than its lease. Who recovers is the
// client with a retry, the completer, or a webhook where there is a payment or a
// refund to tell of. The flows are fresh orders and refunds, and takeovers of
// what a first process left behind when it was killed, so that the fault is the
// second one: by a retry, by the completer, by a webhook, from every recovery
// point.
//
// # What one case does
//
//  1. A database, a stand-in, a proxy and two processes of its own: the victim
//     behind the proxy, and a bystander that sees no fault.
//  2. The flow runs until the fault strikes at its boundary.
//  3. Leases are not waited for. Only the database's clock judges them (R8), so
//     the harness moves locked_at and last_run_at into the past.
//  4. Recovery by somebody: the client, the completer, or a webhook.
//  5. A paused victim wakes up, as a zombie whose key has been taken over. What
//     was held back at the boundary arrives now, late. The verdict waits for
//     the zombie's end: its client may hear the stored answer or "later", and
//     not a row may change.
//  6. The client asks until it has a final answer, asks again, asks with
//     another body; another account orders under the same key.
//  7. The invariants, each of them a query that must return nothing, over our
//     tables, the provider's ledger, every answer that a client saw, and a log
//     of every change of a key, which a trigger of the harness keeps.
//
// # How to use it
//
// A plain go test runs a slice of the matrix; make crash all of it, 1,804 cases
// in three and a half minutes on two cores. A failure prints how to run the one
// case again:
//
//	go test ./internal/crash -run '^TestMatrix$/paid/06-after/kill/retry' -args -matrix=all
//
// TestBoundaries records the boundaries of each flow without a fault and
// compares them with testdata/boundaries.txt: a statement that is new is a
// boundary that no case strikes, so it fails until the file is written again
// with -args -update. The cases come from that file.
//
// TestMutants shows that the matrix can fail: each patch in testdata/mutants
// takes one rule out of the program, and one of the cases that it names must
// give the verdict that it names.
//
// # What it does not know
//
// Faults of PostgreSQL itself, such as a failover, and those of the mail
// server. It trusts the stand-in to be as strict as Stripe.
package crash
