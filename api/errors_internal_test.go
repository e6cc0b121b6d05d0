package api

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/limiter"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
)

func TestRetryAfterSeconds_roundsUp(t *testing.T) {
	t.Parallel()
	for wait, seconds := range map[time.Duration]int{
		-time.Second:                  1,
		0:                             1,
		time.Millisecond:              1,
		time.Second:                   1,
		time.Second + time.Nanosecond: 2,
		1500 * time.Millisecond:       2,
		30 * time.Second:              30,
		time.Hour:                     3600,
	} {
		require.Equal(t, seconds, problemUnavailable.detail("").after(wait).retryAfterSeconds(), wait)
	}
	require.Zero(t, problemNotFound.detail("").retryAfter)
}

// The outcome is unknown as soon as a request has looked up its key.
func TestProblemOf_outcome(t *testing.T) {
	t.Parallel()
	provider := &orders.ProviderError{Kind: orders.ErrProviderUnavailable, Cause: errors.New("timeout")}
	for _, test := range []struct {
		err          error
		before, with string // outcome of the error itself, and of one from under a key
	}{
		{limiter.ErrOverloaded, "none", "unknown"},
		{limiter.ErrRateLimited, "none", "unknown"},
		{postgres.ErrUnavailable, "none", "unknown"},
		{errNotReady, "none", "unknown"},
		{idempotency.ErrNewerVersion, "none", "unknown"},
		{errBodyCut, "none", "none"},
		{&orders.ValidationError{}, "none", "none"},
		{orders.ErrNotFound, "none", "none"},
		{idempotency.ErrMalformed, "none", "none"},
		{provider, "unknown", "unknown"},
		{&orders.ProviderError{Kind: orders.ErrOutcomeUnknown}, "unknown", "unknown"},
		{idempotency.ErrInProgress, "unknown", "unknown"},
		{idempotency.ErrLeaseLost, "unknown", "unknown"},
		{idempotency.ErrKeyReused, "unknown", "unknown"},
		{idempotency.ErrFinishedKeyReused, "final", "final"},
		{&idempotency.KeyExpiredError{}, "final", "final"},
		{errors.New("unforeseen"), "unknown", "unknown"},
	} {
		require.Equal(t, test.before, problemOf(test.err).Outcome, "%v", test.err)
		require.NotContains(t, problemOf(test.err).Detail, "money", "only outcome states it")
		require.Equal(t, test.with, problemOf(&keyedError{test.err}).Outcome, "%v", test.err)
	}
}
