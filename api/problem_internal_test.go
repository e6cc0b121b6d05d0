package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/postgres"
)

func TestProblemRows_haveFiles(t *testing.T) {
	t.Parallel()
	for _, row := range problemRows {
		require.NotNil(t, problemTypeOf(row.slug), "problems/%s.md", row.slug)
	}
}

func TestProblemOf_retryAfterRoundsUp(t *testing.T) {
	t.Parallel()
	for wait, seconds := range map[time.Duration]int{0: 1, time.Second: 1, time.Second + time.Nanosecond: 2, time.Hour: 3600} {
		err := &httpjson.ProviderError{Kind: httpjson.ErrOutcomeUnknown, RetryAfter: wait}
		require.Equal(t, seconds, problemOf(err).retryAfter, wait)
	}
}

func TestProblemOf_outcome(t *testing.T) {
	t.Parallel()
	post := httptest.NewRequest(http.MethodPost, "/v1/orders", nil)
	post.Header.Set("Idempotency-Key", "8f14e45f-ceea-467f-a9d4-1f6b7c3e2d10")
	provider := &httpjson.ProviderError{Kind: httpjson.ErrProviderUnavailable, Cause: errors.New("timeout")}
	for _, test := range []struct {
		err           error
		before, after string // the lookup of the key
	}{
		{admission.ErrOverloaded, "unknown", "unknown"},
		{postgres.ErrUnavailable, "unknown", "unknown"},
		{idempotency.ErrNewerVersion, "unknown", "unknown"},
		{&httpjson.InvalidError{Fields: []httpjson.Field{{Pointer: "/email"}}}, "unknown", "none"},
		{&httpjson.Rejection{Slug: "order-exists"}, "unknown", "none"},
		{httpjson.ErrNotFound, "unknown", "none"},
		{provider, "unknown", "unknown"},
		{&httpjson.ProviderError{Kind: httpjson.ErrOutcomeUnknown}, "unknown", "unknown"},
		{idempotency.ErrInProgress, "unknown", "unknown"},
		{idempotency.ErrKeyReused, "unknown", "unknown"},
		{idempotency.ErrFinishedKeyReused, "final", "final"},
		{&idempotency.KeyExpiredError{}, "final", "final"},
		{errors.New("unforeseen"), "unknown", "unknown"},
	} {
		outcome := func(err error) string { return problemOf(err).forRequest(post, err).Outcome }
		require.Equal(t, test.before, outcome(test.err), "%v", test.err)
		require.NotContains(t, problemOf(test.err).Detail, "money", "only outcome states it")
		require.Equal(t, test.after, outcome(&keyedError{error: test.err}), "%v", test.err)
	}
}
