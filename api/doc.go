// Package api is the HTTP API of the contract openapi.yaml. router.go lists the routes,
// idempotent.go connects a POST with the engine, and problem.go maps errors to problem
// documents (RFC 9457).
package api
