package idempotency_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

func (f *fixture) unfinished() []idempotency.Key {
	f.t.Helper()
	list, err := f.engine.Unfinished(f.t.Context())
	require.NoError(f.t, err)
	var keys []idempotency.Key
	for _, status := range list {
		keys = append(keys, status.Key)
	}
	return keys
}

func TestUnfinished(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	op := &threeSteps{}
	f.put(f.request(), op, finished)
	var all []idempotency.Key
	for i, columns := range []string{
		"last_error = 'no response', updated_at = now() - interval '1 day'", "action_required_at = now()",
		"updated_at = now() + interval '400 days'", "locked_at = now()", // by a clock that ran ahead; held
	} {
		all = append(all, f.putChanged(op, released, 0, fmt.Sprintf("created_at = now() - interval '9 days' + interval '%d hours', %s", i, columns)).Key)
	}
	other := f.request()
	other.AccountID = idempotencytest.Account(t, f.pool)
	f.put(other, op, given{Point: reserved})
	all = append(all, other.Key)
	require.Equal(t, all, f.unfinished(), "the oldest first, of all accounts")

	list, err := f.engine.Unfinished(t.Context())
	require.NoError(t, err)
	require.True(t, list[2].ClockAhead)
	require.True(t, list[3].Leased)
	got := list[0]
	require.WithinDuration(t, time.Now().Add(-9*24*time.Hour), got.CreatedAt, time.Minute)
	require.WithinDuration(t, time.Now().Add(-24*time.Hour), got.UpdatedAt, time.Minute)
	require.Equal(t, idempotency.StoredKey{
		AccountID: f.account, ID: idempotency.KeyID(f.account, all[0]), Key: all[0], Operation: "three_steps", Path: "/v1/things", Point: paid, Runs: 1,
		LastError: "no response", CreatedAt: got.CreatedAt, UpdatedAt: got.UpdatedAt, Idle: got.Idle,
	}, got)
}

func TestLookup_states(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	lookup := func(req idempotency.Request) (idempotency.StoredKey, idempotency.Response, error) {
		return f.engine.Lookup(t.Context(), req.AccountID, req.Key)
	}
	op := &threeSteps{}
	reaped := f.request()
	f.put(reaped, op, finished)
	require.Equal(t, 1, idempotencytest.Reap(t, f.pool))
	status, response, err := lookup(reaped)
	require.NoError(t, err)
	require.Equal(t, idempotency.StateExpired, status.State())
	require.Equal(t, reaped.Key, status.Key)
	require.Zero(t, response)

	stored := idempotency.Response{Status: 402, Headers: map[string]string{"Content-Type": "text/plain"}, Body: []byte("no")}
	for want, state := range map[string]given{
		idempotency.StateFinished:   {Point: idempotency.Finished, Response: stored},
		idempotency.StateInProgress: leased,
		idempotency.StateWaiting:    expired,
	} {
		req := f.request()
		f.put(req, op, state)
		status, response, err := lookup(req)
		require.NoError(t, err)
		require.Equal(t, want, status.State())
		require.Equal(t, want == idempotency.StateInProgress, status.Leased)
		require.Equal(t, state.Response, response)
		require.Equal(t, state.Response.Status, status.ResponseCode)
		require.Equal(t, want == idempotency.StateFinished, status.FinishedAt != nil)
		req.AccountID = uuid.New()
		_, _, err = lookup(req)
		require.ErrorIs(t, err, idempotency.ErrNotFound, "another account's key")
	}
	_, _, err = lookup(f.request())
	require.ErrorIs(t, err, idempotency.ErrNotFound)
}

func TestFind_arguments(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	op := &threeSteps{}
	mine := f.request()
	theirs := mine
	theirs.AccountID = idempotencytest.Account(t, f.pool)
	f.put(mine, op, leased)
	f.put(theirs, op, finished)
	mineOnly, all := []uuid.UUID{f.account}, []uuid.UUID{f.account, theirs.AccountID}
	test := func(name string, accounts []uuid.UUID, idOrKey string, want ...uuid.UUID) {
		t.Run(name, func(t *testing.T) {
			var ids []uuid.UUID
			list, err := f.engine.Find(t.Context(), accounts, idOrKey)
			require.NoError(t, err)
			for _, status := range list {
				ids = append(ids, status.ID)
			}
			require.ElementsMatch(t, want, ids)
		})
	}
	test("id", mineOnly, keyID(mine).String(), keyID(mine))
	test("id of another account", []uuid.UUID{theirs.AccountID}, keyID(mine).String())
	test("client's key of two accounts", all, string(mine.Key), keyID(mine), keyID(theirs))
	test("client's key of an account", mineOnly, string(mine.Key), keyID(mine))
	test("unknown client's key", all, "an-unused-client-key")
	test("empty", all, "")

	require.Equal(t, 1, idempotencytest.Reap(t, f.pool))
	for idOrKey, key := range map[string]idempotency.Key{string(mine.Key): mine.Key, keyID(theirs).String(): ""} {
		list, err := f.engine.Find(t.Context(), []uuid.UUID{theirs.AccountID}, idOrKey)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, key, list[0].Key)
		require.Equal(t, "expired", list[0].State())
	}
}

// A key in the future, of a clock that ran ahead, alerts like an old one.
func TestReadStats_clockAhead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := f.putAbandoned(&threeSteps{}, released, 0)
	f.update(req, "created_at = now() + interval '2 hours', updated_at = now() + interval '2 hours'")
	stats, err := idempotency.ReadStats(t.Context(), f.pool)
	require.NoError(t, err)
	require.Len(t, stats.Unfinished, 1)
	require.Equal(t, 1, stats.Unfinished[0].Old)
	require.InDelta(t, 2, stats.OldestUnfinished.Hours(), 0.1)
}
