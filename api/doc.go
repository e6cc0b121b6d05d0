// Package api is the HTTP API: it authenticates and admits requests, passes them to
// package orders and writes the responses. Its contract is openapi.yaml. Each POST under
// an idempotency key runs through idempotent.go, and problem.go maps errors to problem
// documents (RFC 9457).
package api
