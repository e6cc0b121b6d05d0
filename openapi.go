// Package ordersapi holds the contract of the orders API, openapi.yaml, for the
// API that serves it and the tests that check against it. It knows nothing else:
// a file can only be embedded from its own folder, and the contract belongs at
// the top.
package ordersapi

import _ "embed"

// Spec is the contract, an OpenAPI 3.1 document in YAML. Do not modify it.
//
//go:embed openapi.yaml
var Spec []byte
