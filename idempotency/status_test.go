package idempotency_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
)

// stuck lists what Engine.Stuck does, by the clients' keys.
func (b *bench) stuck(limit int) []idempotency.Key {
	b.t.Helper()
	list, err := b.engine.Stuck(b.t.Context(), grace, limit)
	require.NoError(b.t, err)
	var keys []idempotency.Key
	for _, status := range list {
		keys = append(keys, status.Key)
	}
	return keys
}

func TestStuck(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.Empty(t, b.stuck(10))
	op := &threeSteps{}
	abandoned := b.abandon(op, idempotencytest.State{Point: paid}, 3*grace)
	died := b.abandon(op, idempotencytest.State{Point: reserved, Leased: true, LeaseAge: 4 * grace}, 4*grace)
	givenUp := b.abandon(op, idempotencytest.State{Point: paid}, 24*time.Hour)
	b.set(givenUp, "needs_review_at = now() - interval '1 hour', last_error = 'no answer'")
	justGivenUp := b.abandon(op, idempotencytest.State{Point: paid}, 0)
	b.set(justGivenUp, "needs_review_at = now()")
	elsewhere := b.request()
	elsewhere.AccountID = idempotencytest.Account(t, b.pool)
	b.put(elsewhere, op, idempotencytest.State{})
	b.age(elsewhere, 2*grace)

	b.abandon(op, idempotencytest.State{Point: paid}, grace/2)
	b.abandon(op, idempotencytest.State{Point: paid, Leased: true}, 2*grace) // a run that takes long
	b.put(b.request(), op, idempotencytest.State{Point: idempotency.Finished})

	all := []idempotency.Key{givenUp.Key, died.Key, abandoned.Key, elsewhere.Key, justGivenUp.Key}
	require.Equal(t, all, b.stuck(10), "the longest idle first, of all accounts")
	require.Equal(t, all[:2], b.stuck(2))

	list, err := b.engine.Stuck(t.Context(), grace, 1)
	require.NoError(t, err)
	status := list[0]
	require.WithinDuration(t, time.Now().Add(-time.Hour), *status.NeedsReviewAt, time.Minute)
	require.WithinDuration(t, time.Now().Add(-24*time.Hour), status.LastRunAt, time.Minute)
	require.WithinDuration(t, time.Now(), status.CreatedAt, time.Minute)
	status.NeedsReviewAt, status.LastRunAt, status.CreatedAt = nil, time.Time{}, time.Time{}
	require.Equal(t, idempotency.Status{
		AccountID: b.account,
		ID:        idempotency.KeyID(b.account, givenUp.Key),
		Key:       givenUp.Key,
		Operation: "three_steps",
		Path:      "/v1/things",
		Point:     paid,
		Attempt:   1,
		LastError: "no answer",
	}, status)
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	unfinished, finished := b.request(), b.request()
	id := idempotency.KeyID(b.account, unfinished.Key)
	b.put(unfinished, &threeSteps{}, idempotencytest.State{Point: paid})
	b.put(finished, &threeSteps{}, idempotencytest.State{Point: idempotency.Finished})

	statuses, err := b.engine.Statuses(t.Context(),
		[]uuid.UUID{b.account, b.account, b.account, idempotencytest.Account(t, b.pool)},
		[]uuid.UUID{id, idempotency.KeyID(b.account, finished.Key), uuid.New(), id})
	require.NoError(t, err)
	require.Len(t, statuses, 2, "an id of another account is no key")
	require.Equal(t, unfinished.Key, statuses[id].Key)
	require.Nil(t, statuses[id].FinishedAt)
	require.NotNil(t, statuses[idempotency.KeyID(b.account, finished.Key)].FinishedAt)
}

// find returns what Engine.Find does.
func (b *bench) find(account uuid.UUID, idOrKey string) []idempotency.Status {
	b.t.Helper()
	list, err := b.engine.Find(b.t.Context(), account, idOrKey)
	require.NoError(b.t, err)
	return list
}

func TestFind(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	op := &threeSteps{}
	mine := b.request()
	theirs := mine
	theirs.AccountID = idempotencytest.Account(t, b.pool)
	b.put(mine, op, idempotencytest.State{Point: paid, Leased: true})
	b.put(theirs, op, idempotencytest.State{Point: idempotency.Finished, Response: idempotency.Response{Status: 402}})
	lone := b.request()
	lone.Key = idempotency.Key(uuid.NewString()) // as many clients do
	b.put(lone, op, idempotencytest.State{})
	myID, theirID, loneID := idempotency.KeyID(mine.AccountID, mine.Key), idempotency.KeyID(theirs.AccountID, theirs.Key), idempotency.KeyID(lone.AccountID, lone.Key)

	for name, test := range map[string]struct {
		account uuid.UUID
		idOrKey string
		want    []uuid.UUID
	}{
		"by id":                     {uuid.Nil, myID.String(), []uuid.UUID{myID}},
		"by id in capitals":         {uuid.Nil, strings.ToUpper(myID.String()), []uuid.UUID{myID}},
		"by id and account":         {b.account, myID.String(), []uuid.UUID{myID}},
		"by id and another account": {theirs.AccountID, myID.String(), nil},
		"by a client's key that two accounts use":    {uuid.Nil, string(mine.Key), []uuid.UUID{myID, theirID}},
		"by a client's key and the account":          {theirs.AccountID, string(mine.Key), []uuid.UUID{theirID}},
		"by a client's key and an account without":   {theirs.AccountID, string(lone.Key), nil},
		"by a client's key that looks like an id":    {uuid.Nil, string(lone.Key), []uuid.UUID{loneID}},
		"by an id that nobody has":                   {uuid.Nil, uuid.NewString(), nil},
		"by a client's key that nobody uses":         {uuid.Nil, "nobody-uses-this-key", nil},
		"by a part of a client's key":                {uuid.Nil, string(mine.Key[:16]), nil},
		"by nothing":                                 {uuid.Nil, "", nil},
		"by a client's key and an account of nobody": {uuid.New(), string(mine.Key), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var ids []uuid.UUID
			for _, status := range b.find(test.account, test.idOrKey) {
				ids = append(ids, status.ID)
			}
			require.Equal(t, test.want, ids)
		})
	}

	running, finished, given := b.find(uuid.Nil, myID.String())[0], b.find(uuid.Nil, theirID.String())[0], b.find(uuid.Nil, loneID.String())[0]
	require.True(t, running.Leased)
	require.Zero(t, running.Response)
	require.Nil(t, running.FinishedAt)
	require.False(t, finished.Leased)
	require.Equal(t, 402, finished.Response)
	require.Equal(t, idempotency.Finished, finished.Point)
	require.WithinDuration(t, time.Now(), *finished.FinishedAt, time.Minute)
	require.False(t, given.Leased)
	require.Equal(t, idempotency.Started, given.Point)
	b.age(mine, 0)
	idempotencytest.AgeLease(t, b.pool, b.account, myID, 2*lockTimeout)
	require.False(t, b.find(uuid.Nil, myID.String())[0].Leased, "a lease that is over is none")
}

// An operator's questions do not read the whole table.
func TestStatus_byIndex(t *testing.T) {
	t.Parallel()
	statements := &statements{}
	b := newBench(t, statements.configure)
	for range 3 {
		b.fill(10_000, time.Hour)
		b.account = idempotencytest.Account(t, b.pool)
	}
	op := &threeSteps{}
	for range 20 {
		b.set(b.abandon(op, idempotencytest.State{Point: paid}, 2*grace), "needs_review_at = now()")
		b.abandon(op, idempotencytest.State{Point: paid}, 2*grace)
	}
	b.analyze()
	for name, ask := range map[string]func(){
		"stuck":                             func() { require.Len(t, b.stuck(100), 40) },
		"find by id":                        func() { require.Empty(t, b.find(uuid.Nil, uuid.NewString())) },
		"find by a client's key":            func() { require.Empty(t, b.find(uuid.Nil, "nobody-uses-this-key")) },
		"find in an account":                func() { require.Empty(t, b.find(b.account, uuid.NewString())) },
		"find a client's key of an account": func() { require.Empty(t, b.find(b.account, "nobody-uses-this-key")) },
	} {
		t.Run(name, func(t *testing.T) {
			statements.forget()
			ask()
			require.NotContains(t, statements.plan(b), "Seq Scan on idempotency_keys")
		})
	}
}

func TestStatus_noDatabase(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.pool.Close()
	_, err := b.engine.Stuck(t.Context(), grace, 1)
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	_, err = b.engine.Find(t.Context(), uuid.Nil, "nobody-uses-this-key")
	require.ErrorIs(t, err, postgres.ErrUnavailable)
}
