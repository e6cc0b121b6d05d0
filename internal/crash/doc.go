// Package crash verifies that a crash at any point loses and duplicates no money. Its
// tests run the real binary as a child process and break it at every point that is
// visible from outside.
//
// # Boundaries
//
// The program affects the world only by round trips to PostgreSQL, by calls to the payment
// provider, and by events to a shop. Two proxies intercept the first two: one speaks
// PostgreSQL's protocol, the other is a reverse proxy before the fake Stripe (package
// stripetest). The shop belongs to the harness. Each exchange is a boundary. Between two
// boundaries the program only computes, so a crash there equals a crash at one of them.
//
//	           ┌───────────── harness ──────────────┐
//	client ──▶ │ victim ─┬▶ proxy ─────▶ PostgreSQL │ ◀─┬─ bystander
//	           │         └▶ proxy ─────▶ fake       │ ◀─┴─ completer
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
// run of the completer, a webhook, or a client's GET of the key's status. The flows are
// new orders, refunds and cancels, and takeovers after a first crash at every recovery
// point, also of orders older than the charge window (R24). In the flows after a final
// response, the worker or reconcile meets a refund of the dashboard or one that failed
// late (R27), and the worker sends an event (R28). There, the recovery is another run of
// the command, a completer, or a webhook.
//
// If the customer must approve the payment, the case also has what the customer does
// while the fault lasts or, with "-late", after the leases have expired. The fault hold
// only delays the exchange until then:
//
//	webhook-of-unapproved/08-before/pause/retry/pays-anew
//
// # Changed rows
//
// In three more kinds of cases, the harness changes the rows after the fault, because a
// failover or another version can leave them so:
//
//	paid/12-after/kill-lost-2/resumed-late-by-completer
//	paid/09-after/kill-clock-ahead/operator
//	paid/06-after/kill-newer-point/completer
//
// Lost rows: an asynchronous failover restores the state before the last transactions
// of the victim, here two, so all later rows of other accounts are lost, too. The clients
// retry, or reconcile --lost-rows --fix runs first. While the provider is unavailable for
// their retry, a later run or an operator must find the charge whose rows are lost, also
// if the provider has no search, but then only within half an hour (R12).
//
// Clock ahead: the primary that wrote the rows had a clock that was an hour ahead, so a
// lease begins in the future. That is no lease (R8), and a recovery must not wait for it.
//
// Newer version: the key has a recovery point, operation or fingerprint that the program
// does not know. No command may change it (R18). Then the newer version finishes it.
//
// To let time pass, the harness moves the times of all rows into the past and the
// provider's clock forward. The provider forgets its keys after 24 hours.
//
// # Steps of a case
//
//  1. It gets a database, a fake, a victim behind the proxies and, if a step
//     needs one, a bystander: a second process without a fault.
//  2. The flow runs until the fault is triggered.
//  3. The harness moves locked_at and updated_at into the past, which expires the
//     leases without a wait (R8). A case with changed rows changes them here.
//  4. The recovery finishes the key.
//  5. A paused victim resumes: the request at its boundary arrives late.
//     It may change no row.
//  6. The client retries until a final response, repeats the request, and sends
//     another body under the key. Another account uses the same key.
//  7. The invariants are checked: queries that must return no row, over the program's
//     tables, the provider's ledger, all responses, and a log of the changes of keys.
//
// # Use
//
// make test runs a sample of the matrix. make crash runs all cases and mutants
// (20 minutes to two hours on two cores). A failure prints how to run its case
// again:
//
//	go test ./internal/crash -run '^TestMatrix$/paid/06-after/kill/retry' -args -matrix=all
//
// TestBoundaries compares the boundaries of each flow with the file from which the
// cases are made, so that no new statement is left out. -args -update writes the file.
// TestMutants verifies that the matrix can fail: each patch in testdata/mutants removes
// one rule, and a case must report the verdict that the patch names. Rules about what the
// matrix does not have, such as a demoted server, have a test of the program instead.
//
// It does not cover faults of PostgreSQL itself and of the mail server, faults in the
// reaper, in reconcile --lost-rows and in an operator's commands, and a client whose first
// retry after lost rows comes when the provider has forgotten its keys: then nothing of
// ours knows the charge, and only reconcile finds it. It relies on a fake as strict as
// Stripe.
package crash
