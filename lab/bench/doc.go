// Command bench measures the API against the limit of its database, on one machine and in
// one run: `make -C lab bench`.
//
// It runs a private PostgreSQL with durable settings, the fake Stripe (cmd/stripetest)
// and `orders serve` as separate processes. An increasing number of clients creates
// orders. Absolute figures drift between machines and between hours, so the results are
// ratios to two references:
//
//   - The floor is pgbench with the SQL of an order's transactions, on the same server
//     and with as many clients. API and floor alternate. See floor.sql.
//   - The baseline is a minimal net/http program with an order's round trips and provider
//     calls. The scenario "least" compares CPU time per order. See baseline.go.
//
// After each scenario an audit compares the number of 201 responses with those of paid
// orders and receipts, and runs `orders reconcile`. Only "least" has no audit, because
// the baseline stores generated payment ids.
package main
