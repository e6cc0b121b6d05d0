package main

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

// The program has no added operation, so the resource is given.
func TestPrintHistory_resource(t *testing.T) {
	t.Parallel()
	var shown strings.Builder
	id := uuid.New()
	resource := &orders.Resource{ID: id, Href: "/v1/credits/" + id.String()}
	require.NoError(t, printHistory(&shown, idempotency.Status{Operation: "grant_credit"}, orders.KeyHistory{}, resource))
	require.Regexp(t, "(?m)^resource +"+id.String()+", at /v1/credits/"+id.String()+"$", shown.String())
	shown.Reset()
	require.NoError(t, printHistory(&shown, idempotency.Status{Operation: "create_order"}, orders.KeyHistory{}, nil))
	require.NotContains(t, shown.String(), "resource")
}
