package api_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
)

// The Go client has each member of the contract.
func TestClient_members(t *testing.T) {
	t.Parallel()
	requireMembers(t, map[string]any{
		"OrderRequest": client.OrderParams{},
		"Order":        client.Order{},
		"OrderItem":    client.Item{},
		"Dispute":      client.Dispute{},
		"KeyStatus":    client.KeyStatus{},
	})
}

// requireMembers compares each struct of the client with the schema of this name.
func requireMembers(t *testing.T, clients map[string]any) {
	t.Helper()
	doc := openContract(t).doc
	for schema, value := range clients {
		documented := slices.Sorted(maps.Keys(doc.Components.Schemas[schema].Value.Properties))
		var members []string
		for field := range reflect.TypeOf(value).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			members = append(members, name)
		}
		slices.Sort(members)
		require.Equal(t, documented, members, "client: the members of %s", schema)
	}
}
