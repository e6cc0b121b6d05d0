// Package crash verifies that a crash at any point loses and duplicates no money. Its
// tests run the real binary as a child process and break it at every point that is
// visible from outside.
//
// # Boundaries
//
// The program affects the world only by round trips to PostgreSQL and by calls to the
// payment provider. Two proxies intercept both: one speaks PostgreSQL's protocol, the
// other is a reverse proxy before the stand-in for Stripe (package stripetest). Each
// exchange is a boundary. Between two boundaries the program only computes, so a crash
// there equals a crash at one of them.
//
//	           ┌───────────── harness ──────────────┐
//	client ──▶ │ victim ─┬▶ proxy ─────▶ PostgreSQL │ ◀─┬─ bystander
//	           │         └▶ proxy ─────▶ stand-in   │ ◀─┴─ completer
//	           └────────────────────────────────────┘
//
// Every round trip is a boundary, also one that only prepares statements or looks up
// the API key. Opening a connection is none. Each pool of the victim has one
// connection, so that the order is the same in every run.
//
// # Cases
//
// A case is a flow, one of its boundaries, a moment (before the exchange, or before the
// program receives the response), a fault and a recovery:
//
//	paid/06-after/kill/retry
//
// A new order will be paid; its sixth exchange in testdata/boundaries.txt, the COMMIT
// of the first transaction, has succeeded; the process is killed; the client retries.
// "After" a COMMIT, its outcome is unknown (R22). "After" a confirm, the response of a
// charge is lost (R12).
//
// The faults are kill; cut of one connection; outage of the database or the provider;
// and pause (SIGSTOP) for longer than the lease. The recovery is a client's retry, a
// run of the completer, or a webhook. The flows are new orders and refunds, and
// takeovers after a first crash at every recovery point, also of orders older than the
// charge window (R24).
//
// If the customer must approve the payment, the case also has what the customer does
// while the fault lasts or, with "-late", after the leases have expired. The fault hold
// only delays the exchange until then:
//
//	webhook-of-unapproved/08-before/pause/retry/pays-anew
//
// # Steps of a case
//
//  1. It gets a database, a stand-in, a victim behind the proxies and, if a step
//     needs one, a bystander: a second process without a fault.
//  2. The flow runs until the fault is triggered.
//  3. The harness moves locked_at and last_run_at into the past, which expires the
//     leases without a wait (R8).
//  4. The recovery finishes the key.
//  5. A paused victim resumes as a zombie: the request at its boundary arrives late.
//     It may change no row.
//  6. The client retries until a final response, repeats the request, and sends
//     another body under the key. Another account uses the same key.
//  7. The invariants are checked: queries that must return no row, over the program's
//     tables, the provider's ledger, all responses, and a log of the changes of keys.
//
// # Use
//
// A plain go test runs a sample of the matrix. make crash runs all of it: 2,980 cases
// in sixteen minutes on two cores that are busy with other builds. A failure prints how
// to run its case again:
//
//	go test ./internal/crash -run '^TestMatrix$/paid/06-after/kill/retry' -args -matrix=all
//
// TestBoundaries compares the boundaries of each flow with the file from which the
// cases are made, so that no new statement is left out. -args -update writes the file.
// TestMutants verifies that the matrix can fail: each patch in testdata/mutants removes
// one rule, and a case must report the verdict that the patch names.
//
// It does not cover faults of PostgreSQL itself and of the mail server, the reaper,
// reconcile and an operator's commands. It relies on a stand-in as strict as Stripe.
package crash
