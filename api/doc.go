// Package api is the HTTP API: it authenticates a request, admits it, passes it to
// package orders and writes the response. openapi.yaml is its contract.
//
// Every POST under an idempotency key runs through idempotent.go, including the
// preferences of RFC 7240. One table, errors.go, maps errors to problem documents
// (RFC 9457); problem_docs.go documents each problem for people. Stored responses
// come from package orders as bytes and are written unchanged.
//
// The package does not know the provider's API, receipts or how a key is claimed.
package api
