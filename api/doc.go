// Package api speaks HTTP: it authenticates, decodes, hands the request to
// package orders and writes the answer. openapi.yaml is its contract.
//
// A client may prefer not to wait for the answer, or to wait for one that is in
// progress (RFC 7240): prefer.go reads that, keys.go and background.go do it.
//
// Every error becomes an answer in one table (errors.go), as a problem document
// of RFC 9457. Answers that are stored under an idempotency key come from
// package orders as bytes and are written as they are. What people read about
// an error, on its page and in the contract, is in explain.go.
//
// When there is too much to do, package idempotency turns new orders away, and
// admission.go whatever else would use the database: health is asked last.
//
// The package knows nothing of the payment provider but the address that its
// events come to, nothing of receipts or of how a key is claimed.
package api
