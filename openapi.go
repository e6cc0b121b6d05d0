// Package ordersapi embeds the contract, the document for operators and the workflows, because
// a file can only be embedded by a package above it.
package ordersapi

import _ "embed"

// Spec is the contract, an OpenAPI 3.1 document in YAML. Do not modify it.
//
//go:embed openapi.yaml
var Spec []byte

// ServiceSpec describes the addresses that are not for clients. It refers to Spec as openapi.yaml.
//
//go:embed openapi.service.yaml
var ServiceSpec []byte

// Workflows are sequences of requests and their responses, an Arazzo document.
//
//go:embed orders.arazzo.yaml
var Workflows []byte
