// Package api is the HTTP API of the contract openapi.yaml. router.go lists the routes, and
// idempotent.go connects a POST with the engine.
package api
