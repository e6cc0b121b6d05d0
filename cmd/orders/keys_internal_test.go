package main

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
	"example.com/orders-api/orders"
)

// The program has no added operation, so the resource is given.
func TestPrintHistory(t *testing.T) {
	t.Parallel()
	var shown strings.Builder
	id := uuid.New()
	resource := &operations.Resource{ID: id, Href: "/v1/credits/" + id.String()}
	require.NoError(t, printHistory(&shown, idempotency.Status{Operation: "grant_credit"}, orders.KeyHistory{}, resource))
	require.Regexp(t, "(?m)^resource +"+id.String()+", at /v1/credits/"+id.String()+"$", shown.String())
	shown.Reset()
	require.NoError(t, printHistory(&shown, idempotency.Status{Operation: "create_order"}, orders.KeyHistory{}, nil))
	require.NotContains(t, shown.String(), "resource")
	require.NotRegexp(t, "\nclock|\norder|\nrefund", shown.String())
	shown.Reset()
	require.NoError(t, printHistory(&shown, idempotency.Status{ClockAhead: true}, orders.KeyHistory{}, nil))
	require.Contains(t, shown.String(), "\nclock ")

	shown.Reset()
	atProvider := "re_1"
	refund := &orders.Refund{ID: id, Status: "succeeded", Amount: 1000, Currency: "usd", ProviderRefundID: &atProvider}
	require.NoError(t, printHistory(&shown, idempotency.Status{Operation: "create_refund"}, orders.KeyHistory{Refund: refund}, nil))
	require.Regexp(t, "(?m)^refund +"+id.String()+", succeeded, 1000 usd in the smallest unit$", shown.String())
	require.Regexp(t, "(?m)^refund at the provider +re_1$", shown.String())
}
