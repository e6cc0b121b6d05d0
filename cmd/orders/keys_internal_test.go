package main

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
)

// The program has no added operation, so the resource is given.
func TestPrintHistory(t *testing.T) {
	t.Parallel()
	var shown strings.Builder
	id := uuid.New()
	links := operations.Links{operations.MemberResource: {ID: id, Href: "/v1/credits/" + id.String()}}
	require.NoError(t, printHistory(&shown, idempotency.Status{Operation: "grant_credit"}, links, nil))
	require.Regexp(t, "(?m)^resource +"+id.String()+", at /v1/credits/"+id.String()+"$", shown.String())
	require.NotContains(t, shown.String(), "\nclock")
	shown.Reset()
	require.NoError(t, printHistory(&shown, idempotency.Status{ClockAhead: true}, nil, nil))
	require.Contains(t, shown.String(), "\nclock ")
}
