// Command bench measures the API against the limit of its database, on one
// machine and in one run: `make bench`.
//
// It starts a private PostgreSQL with durable settings, and the fake Stripe
// (cmd/stripetest) and `orders serve` as separate processes: the system under test.
// An increasing number of clients creates orders. The results are compared with two
// references, because absolute figures drift between machines and between hours:
//
//   - The floor is pgbench with the SQL of an order's transactions and nothing else,
//     on the same server, with as many clients. API and floor alternate, and the
//     result is the ratio of their rates. See floor.sql.
//   - The baseline is a minimal net/http program that makes an order's round trips
//     and provider calls and nothing else. The scenario "least" compares its CPU per
//     order with the API's. See baseline.go.
//
// After each scenario the payments are audited: the numbers of paid orders and of
// receipts equal the number of 201 responses, and `orders reconcile` finds no
// discrepancy with the provider. Only "least" has no audit, because the baseline
// stores generated payment ids instead of those of its payments.
package main
