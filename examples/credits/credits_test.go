package credits_test

import (
	"errors"
	"os"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/examples/credits"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

// docs/add-an-operation.md states this limit.
func TestOperation_length(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("credits.go")
	require.NoError(t, err)
	code := regexp.MustCompile(`(?m)^\s*[^\s/].*$`).FindAll(source, -1)
	require.Less(t, len(code), 100, "lines of code")
}

func TestGrant_responseLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wallets.lostResponses = 1

	_, err := f.grant()
	require.ErrorContains(t, err, "wallet service")
	require.Equal(t, "pending", f.status(), "the outcome is unknown, so nothing is stored")
	result, err := f.grant()
	requireGranted(t, result, err)
	require.False(t, result.Replayed)
	require.Equal(t, 2, result.Attempt)
	require.Equal(t, "granted", f.status())

	again, err := f.grant()
	requireGranted(t, again, err)
	require.True(t, again.Replayed)
	require.Equal(t, result.Response, again.Response)
	require.Equal(t, 2, f.wallets.calls, "a replay makes no call")
	f.wallets.requireOne(t)
}

func TestGrant_concurrent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var first, inProgress atomic.Int64
	var requests errgroup.Group
	for range 20 {
		requests.Go(func() error {
			result, err := f.grant()
			switch {
			case errors.Is(err, idempotency.ErrInProgress):
				inProgress.Add(1)
				return nil
			case err == nil && !result.Replayed:
				first.Add(1)
			}
			return err
		})
	}
	require.NoError(t, requests.Wait())
	require.EqualValues(t, 1, first.Load())
	t.Logf("%d requests found the key in progress", inProgress.Load())
	require.Equal(t, 1, f.wallets.calls)
	f.wallets.requireOne(t)
	result, err := f.grant()
	requireGranted(t, result, err)
	require.True(t, result.Replayed)
}

// A process dies between the call and transaction 2, and its client does not retry: the
// completer finishes the credit.
func TestGrant_crashBetweenCallAndRecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wallets.lostResponses = 1
	_, err := f.grant() // makes the call and records nothing
	require.Error(t, err)
	id := idempotency.KeyID(f.account, key)
	_, err = f.pool.Exec(t.Context(), // a dead process does not release its lease
		"UPDATE idempotency_keys SET locked_at = last_run_at, last_error = NULL WHERE account_id = $1 AND id = $2", f.account, id)
	require.NoError(t, err)

	completer, err := idempotency.NewCompleter(f.Engine, f.Operation, idempotency.CompleterConfig{
		Grace: 5 * time.Minute, MaxAttempts: 10, Limit: 10, Concurrency: 1,
	})
	require.NoError(t, err)
	pass, err := completer.RunOnce(t.Context())
	require.NoError(t, err)
	require.Zero(t, pass, "the lease is not over")

	idempotencytest.AgeLease(t, f.pool, f.account, id, time.Hour)
	idempotencytest.AgeRun(t, f.pool, f.account, id, time.Hour)
	pass, err = completer.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, pass)
	require.Equal(t, "granted", f.status())
	f.wallets.requireOne(t)

	result, err := f.grant() // the client retries after all
	requireGranted(t, result, err)
	require.True(t, result.Replayed)
}

func TestGrant_finalRefusalIsStored(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 2 {
		result, err := f.send(key, `{"wallet":"nobody","amount":1}`)
		require.NoError(t, err)
		require.Equal(t, 422, result.Response.Status)
	}
	require.Equal(t, "refused", f.status())
	require.Equal(t, 1, f.wallets.calls)
}

func TestGrant_invalid(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, body := range []string{`{}`, `{"wallet":"ann","amount":-1}`, `{"wallet":1,"amount":1}`} {
		_, err := f.send(key, body)
		require.ErrorIs(t, err, credits.ErrInvalid, body)
	}
	_, err := f.send(key, `{`)
	require.Error(t, err)
	result, err := f.grant()
	requireGranted(t, result, err) // the key was not used
	_, err = f.send(key, `{"wallet":"ann","amount":9900}`)
	require.ErrorIs(t, err, idempotency.ErrKeyReused)
}

// The reaper deletes a finished key after days. What it created remains (R17).
func TestGrant_reapedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	result, err := f.grant()
	requireGranted(t, result, err)
	require.Equal(t, 1, idempotencytest.Reap(t, f.pool))
	_, err = f.grant()
	var expired *idempotency.KeyExpiredError
	require.ErrorAs(t, err, &expired)
	require.Equal(t, 1, f.wallets.calls)
}
