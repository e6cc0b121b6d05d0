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

// The guide promises it.
func TestTheOperationIsShort(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("credits.go")
	require.NoError(t, err)
	code := regexp.MustCompile(`(?m)^\s*[^\s/].*$`).FindAll(source, -1)
	require.Less(t, len(code), 100, "lines of code")
}

func TestGrant_anAnswerGetsLost(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.wallets.lose = 1

	_, err := s.grant()
	require.ErrorContains(t, err, "wallet service")
	require.Equal(t, "pending", s.status(), "nobody knows, so nothing is stored")
	result, err := s.grant()
	requireGranted(t, result, err)
	require.False(t, result.Replayed)
	require.Equal(t, 2, result.Attempt)
	require.Equal(t, "granted", s.status())

	again, err := s.grant()
	requireGranted(t, again, err)
	require.True(t, again.Replayed)
	require.Equal(t, result.Response, again.Response)
	require.Equal(t, 2, s.wallets.calls, "a replay calls nobody")
	s.wallets.requireOne(t)
}

func TestGrant_twins(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var first, inProgress atomic.Int64
	var twins errgroup.Group
	for range 20 {
		twins.Go(func() error {
			result, err := s.grant()
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
	require.NoError(t, twins.Wait())
	require.EqualValues(t, 1, first.Load())
	t.Logf("%d were told that another one is at it", inProgress.Load())
	require.Equal(t, 1, s.wallets.calls)
	s.wallets.requireOne(t)
	result, err := s.grant()
	requireGranted(t, result, err)
	require.True(t, result.Replayed)
}

// A process dies between the call and transaction 2, and its client never comes
// back: the completer finds the key, and finishes the credit.
func TestGrant_crashBetweenCallAndRecord(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.wallets.lose = 1
	_, err := s.grant() // the call was made, and nothing was recorded
	require.Error(t, err)
	id := idempotency.KeyID(s.account, key)
	_, err = s.pool.Exec(t.Context(), // and nobody was left to give the lease back
		"UPDATE idempotency_keys SET locked_at = last_run_at, last_error = NULL WHERE account_id = $1 AND id = $2", s.account, id)
	require.NoError(t, err)

	completer, err := idempotency.NewCompleter(s.Engine, s.Operation, idempotency.CompleterConfig{
		Grace: 5 * time.Minute, MaxAttempts: 10, Limit: 10, Concurrency: 1,
	})
	require.NoError(t, err)
	pass, err := completer.RunOnce(t.Context())
	require.NoError(t, err)
	require.Zero(t, pass, "its lease may be alive")

	idempotencytest.AgeLease(t, s.pool, s.account, id, time.Hour)
	idempotencytest.AgeRun(t, s.pool, s.account, id, time.Hour)
	pass, err = completer.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, pass)
	require.Equal(t, "granted", s.status())
	s.wallets.requireOne(t)

	result, err := s.grant() // the client comes back after all
	requireGranted(t, result, err)
	require.True(t, result.Replayed)
}

func TestGrant_finalRefusalIsStored(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for range 2 {
		result, err := s.send(key, `{"wallet":"nobody","amount":1}`)
		require.NoError(t, err)
		require.Equal(t, 422, result.Response.Status)
	}
	require.Equal(t, "refused", s.status())
	require.Equal(t, 1, s.wallets.calls)
}

func TestGrant_wrongRequests(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, body := range []string{`{}`, `{"wallet":"ann","amount":-1}`, `{"wallet":1,"amount":1}`} {
		_, err := s.send(key, body)
		require.ErrorIs(t, err, credits.ErrInvalid, body)
	}
	_, err := s.send(key, `{`)
	require.Error(t, err)
	result, err := s.grant()
	requireGranted(t, result, err) // the key was not used up
	_, err = s.send(key, `{"wallet":"ann","amount":9900}`)
	require.ErrorIs(t, err, idempotency.ErrKeyReused)
}

// The reaper deletes a finished key after days. What it made is still there (R17).
func TestGrant_notAgainAfterTheReaper(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	result, err := s.grant()
	requireGranted(t, result, err)
	_, err = s.pool.Exec(t.Context(), "DELETE FROM idempotency_keys WHERE account_id = $1", s.account)
	require.NoError(t, err)
	_, err = s.grant()
	require.ErrorContains(t, err, "credits_pkey")
	require.Equal(t, 1, s.wallets.calls)
}
