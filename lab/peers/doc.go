// Command peers compares this program with what people would use instead: `make -C lab peers`.
//
// Each peer is a program in a folder of its own, with a module of its own, that serves the
// same POST /v1/orders: a pending order, a PaymentIntent, its confirm, the paid order, a staged
// job and audit records. All run against the same private PostgreSQL, with a fake Stripe of
// their own and the same clients.
//
// The first part measures each peer by turns. Only one of them runs at a time, so none pays
// for another one's background work. The second part kills the process at random moments and
// loses responses, while clients send the same request until they get a final answer. It then
// compares the answers with the fake's ledger and the peer's tables.
//
// Results are written to results.json, from which the tables of README.md are generated.
package main
