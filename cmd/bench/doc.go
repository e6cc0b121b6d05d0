// Command bench measures the API against the limit of its database, on one
// machine and in one run: `make bench`.
//
// It starts a PostgreSQL of its own with durable settings, the stand-in for
// Stripe and `orders serve` as separate processes, and offers orders by more and
// more clients. In turns with that, on the same server, pgbench runs nothing but
// the SQL of an order's three transactions, as many at a time: the floor. What
// counts is the ratio of the two, because absolute figures drift from machine to
// machine and from hour to hour.
//
// After each scenario the money is checked: as many paid orders, receipts and
// charges as clients were told, and `orders reconcile` finds no discrepancy. Only
// "least" has none to check: half of its orders go to a program that does their
// calls and round trips and keeps no promise, see bare.go.
package main
