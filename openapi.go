// Package ordersapi embeds the contract, because a file can only be embedded by a package above it.
package ordersapi

import _ "embed"

// Spec is the contract, an OpenAPI 3.1 document in YAML. Do not modify it.
//
//go:embed openapi.yaml
var Spec []byte
