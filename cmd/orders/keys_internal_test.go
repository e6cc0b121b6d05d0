package main

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/httpjson"
)

// The program has no added operation, so the resource is given.
func TestPrintHistory(t *testing.T) {
	t.Parallel()
	var shown strings.Builder
	id := uuid.New()
	var h history
	h.Operation = "grant_credit"
	h.Links = httpjson.Links{"resource": {ID: id, Href: "/v1/credits/" + id.String()}}
	require.NoError(t, h.print(&shown))
	require.Regexp(t, "(?m)^resource +"+id.String()+", at /v1/credits/"+id.String()+"$", shown.String())
	require.NotContains(t, shown.String(), "\nclock")
	shown.Reset()
	h.ClockAhead = true
	require.NoError(t, h.print(&shown))
	require.Contains(t, shown.String(), "\nclock ")
}
