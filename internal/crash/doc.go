// Package crash verifies that the program survives its own death. It has no code of
// the program: its tests run the real binary as a child process and break it at
// every point that is visible from outside.
//
// # The idea
//
// The program affects the world in two ways only: by round trips to PostgreSQL and
// by calls to the payment provider. The harness intercepts both, with a proxy that
// speaks PostgreSQL's protocol, and with a reverse proxy before the stand-in for
// Stripe (package stripetest, a fake server with Stripe's idempotency rules). So it
// sees every exchange begin and end, and no line of the program exists for that
// purpose. Such an exchange is a boundary. Between two boundaries the program only
// computes: to die there is to die at one of them.
//
//	           ┌───────────── harness ──────────────┐
//	client ──▶ │ victim ─┬▶ proxy ─────▶ PostgreSQL │ ◀─┬─ bystander
//	           │         └▶ proxy ─────▶ stand-in   │ ◀─┴─ completer
//	           └────────────────────────────────────┘
//
// A case is a flow, one of its boundaries, a moment (before the exchange, or after
// it and before the program receives the response), a fault and a recovery:
//
//	paid/06-after/kill/retry
//
// means: a new order that will be paid; its sixth exchange, which according to
// testdata/boundaries.txt is the COMMIT of the first transaction, has just
// succeeded; the process is killed; the client retries. "After" a COMMIT is the
// COMMIT with an unknown outcome (R22); "after" a confirm is a charge whose response
// is lost (R12).
//
// The faults are the kill; the cut of one connection, after which the program may
// try again; the outage, during which the program cannot reach the database, or the
// provider; and the pause (SIGSTOP) for longer than the lease. The recovery is a
// retry of the client, a run of the completer, or a webhook if the provider has a
// payment or a refund to report. The flows are new orders and refunds, and the
// takeovers of what a first process left when it was killed, so that the fault is
// the second one: by a retry, by the completer, by a webhook, from every recovery
// point, also when the order is older than the charge window (R24).
//
// In some flows the customer must approve the payment. Such a case also has a customer,
// who approves, declines, declines and pays with another card, or does nothing:
//
//	webhook-of-unapproved/08-before/pause/retry/pays-anew
//
// The customer acts while the fault lasts or, with "-late", once the leases have
// expired, and again after each response that requires an action. A further fault, the
// hold, breaks nothing: the exchange waits until the customer has acted. After the final
// response the customer tries once more, with both cards.
//
// # What a boundary is
//
// Every round trip counts, also one that only prepares statements, and also the
// lookup of the API key, which uses a pool of its own. Each pool of the victim needs
// one connection, so its round trips have the same order in every run. To open a
// connection is no boundary: nothing of the flow has been sent on it.
//
// # What one case does
//
//  1. It gets a database, a stand-in, two proxies and two processes of its own: the
//     victim behind the proxies, and a bystander that no fault hits.
//  2. The flow runs until the fault is triggered at its boundary.
//  3. Leases are not waited for. Only the database's clock decides when they end
//     (R8), so the harness moves locked_at and last_run_at into the past.
//  4. The recovery finishes the key.
//  5. A paused victim resumes, as a zombie: a run whose key has been taken over. The
//     request that was held at the boundary arrives now, late. The zombie's client
//     may receive the stored response or a request to retry, and no row may change.
//  6. The client retries until it has a final response, repeats the request, and
//     sends another body under the same key. Another account uses the same key.
//  7. The invariants are checked. Each is a query that must return nothing, over the
//     program's tables, the provider's ledger, every response that a client
//     received, and a log of every change of a key, which a trigger of the harness
//     writes.
//
// # How to use it
//
// A plain go test runs a slice of the matrix. make crash runs all of it: 2,980 cases
// in sixteen minutes on two cores that are busy with other builds. A failure
// prints how to run its case again:
//
//	go test ./internal/crash -run '^TestMatrix$/paid/06-after/kill/retry' -args -matrix=all
//
// TestBoundaries records the boundaries of each flow without a fault and compares
// them with testdata/boundaries.txt, from which the cases are made. A new statement
// is a boundary that no case breaks, so the test fails until the file is updated
// with -args -update.
//
// TestMutants verifies that the matrix can fail: each patch in testdata/mutants
// removes one rule from the program, and one of the cases that the patch names must
// report the verdict that it names.
//
// # What it does not cover
//
// Faults of PostgreSQL itself, such as a failover, and of the mail server. The
// reaper, reconcile and an operator's commands. It trusts the stand-in to be as
// strict as Stripe.
package crash
