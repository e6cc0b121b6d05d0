package api

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"example.com/orders-api/internal/plainjson"
)

// specJSON returns the contract as JSON. The order of members is lost.
func specJSON(document []byte) ([]byte, error) {
	var value any
	err := yaml.Unmarshal(document, &value)
	if err == nil {
		document, err = plainjson.Marshal(value)
	}
	if err != nil {
		return nil, fmt.Errorf("api: OpenAPI document: %w", err)
	}
	return document, nil
}
