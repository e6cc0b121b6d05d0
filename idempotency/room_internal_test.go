package idempotency

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// books is the database as the room's poller sees it.
type books struct {
	mu    sync.Mutex
	rows  map[keyRef]*storedKey
	err   error
	looks [][]awaited
}

func (b *books) look(_ context.Context, keys []awaited) ([]*storedKey, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looks = append(b.looks, keys)
	var found []*storedKey
	for _, key := range keys {
		if row := b.rows[key.keyRef]; row != nil {
			found = append(found, row)
		}
	}
	return found, b.err
}

func (b *books) set(row *storedKey, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	if row != nil {
		b.rows[keyRef{row.accountID, row.id}] = row
	}
}

func (b *books) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.looks)
}

func openRoom(t *testing.T, capacity int) (*room, *books, *bytes.Buffer) {
	t.Helper()
	b, log := &books{rows: map[keyRef]*storedKey{}}, &bytes.Buffer{}
	r := newRoom(capacity, b.look, slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(r.close) // else a test that fails says only that the poller is left
	return r, b, log
}

func someKey() keyRef { return keyRef{uuid.New(), uuid.New()} }

// row is a key of which nobody has run for as long as it takes.
func (k keyRef) row(point RecoveryPoint) *storedKey {
	return &storedKey{accountID: k.accountID, id: k.id, point: point, readAt: time.Now(), lastRunAt: time.Now().Add(-runPause)}
}

// visit is what came of a wait.
type visit struct {
	news   *storedKey
	waited bool
	took   time.Duration
}

// waitAsync waits in the background.
func (r *room) waitAsync(ctx context.Context, key keyRef, watches bool, patience time.Duration) <-chan visit {
	done := make(chan visit, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		begun := time.Now()
		news, waited := r.wait(ctx, key, watches)
		done <- visit{news, waited, time.Since(begun)}
	}()
	synctest.Wait() // it has its seat
	return done
}

func (r *room) isEmpty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count == 0 && len(r.waiting) == 0 && !r.looking
}

func TestRoom_everybodyGetsTheAnswerFromOneLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, b, _ := openRoom(t, 500)
		key := someKey()
		var visits []<-chan visit
		for i := range 500 {
			visits = append(visits, r.waitAsync(t.Context(), key, i%2 == 0, 30*time.Second))
		}
		<-time.After(10 * time.Second)
		synctest.Wait()
		require.Equal(t, int(10*time.Second/lookInterval), b.count(), "looks, however many wait")
		require.Equal(t, []awaited{{key, true, true}}, b.looks[0])

		answer := key.row(Finished)
		b.set(answer, nil)
		for _, done := range visits {
			got := <-done
			require.Same(t, answer, got.news)
			require.True(t, got.waited)
			require.LessOrEqual(t, got.took, 10*time.Second+lookInterval)
		}
		looks := b.count()
		<-time.After(time.Minute)
		require.Equal(t, looks, b.count(), "nobody waits, so nobody looks")
		require.True(t, r.isEmpty())
	})
}

func TestRoom_oneTakesOverAFreeKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, b, _ := openRoom(t, 10)
		key := someKey()
		watcher := r.waitAsync(t.Context(), key, true, 30*time.Second)
		first := r.waitAsync(t.Context(), key, false, 30*time.Second)
		second := r.waitAsync(t.Context(), key, false, 30*time.Second)

		busy := key.row("paid")
		busy.leased = true
		b.set(busy, nil)
		<-time.After(time.Second)
		fresh := key.row("paid")
		fresh.lastRunAt = fresh.readAt.Add(-runPause / 2)
		b.set(fresh, nil)
		<-time.After(time.Second)
		require.Empty(t, first, "the last run has only just begun")

		free := key.row("paid")
		b.set(free, nil)
		require.Same(t, free, (<-first).news)
		b.set(busy, nil) // by the first
		<-time.After(time.Second)
		require.Empty(t, second)
		require.Empty(t, watcher)

		b.set(free, nil)
		require.Same(t, free, (<-second).news)
		<-time.After(time.Second)
		require.Empty(t, watcher, "who looks on never takes over")
		b.set(key.row(Finished), nil)
		require.NotNil(t, (<-watcher).news)
	})
}

func TestRoom_onlyWatchersHearOfReview(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, b, _ := openRoom(t, 10)
		key := someKey()
		watcher := r.waitAsync(t.Context(), key, true, 30*time.Second)
		other := r.waitAsync(t.Context(), key, false, 10*time.Second)
		row := key.row("paid")
		row.leased, row.reviewAt = true, &row.readAt
		b.set(row, nil)
		require.Same(t, row, (<-watcher).news)
		got := <-other
		require.Nil(t, got.news)
		require.True(t, got.waited)
		require.Equal(t, 10*time.Second, got.took)
	})
}

func TestRoom_runsOfThisProcessAreHeardAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, b, _ := openRoom(t, 10)
		key := someKey()
		waiter := r.waitAsync(t.Context(), key, false, 30*time.Second)
		<-time.After(lookPause)
		b.set(key.row(Finished), nil)
		r.nudge(someKey()) // somebody else's
		synctest.Wait()
		require.Empty(t, waiter)
		r.nudge(key)
		require.Equal(t, lookPause, (<-waiter).took)
	})
}

func TestRoom_fullOrClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, b, _ := openRoom(t, 2)
		ctx, hangUp := context.WithCancel(t.Context())
		first := r.waitAsync(ctx, someKey(), false, 30*time.Second)
		second := r.waitAsync(t.Context(), someKey(), true, 30*time.Second)
		require.Equal(t, visit{}, <-r.waitAsync(t.Context(), someKey(), false, 30*time.Second), "full")

		hangUp()
		<-first
		third := r.waitAsync(t.Context(), someKey(), false, 30*time.Second)
		require.Empty(t, third, "a seat was free")

		r.close()
		require.Equal(t, visit{}, <-second)
		require.Equal(t, visit{}, <-third)
		require.Equal(t, visit{}, <-r.waitAsync(t.Context(), someKey(), false, 30*time.Second), "closed")
		synctest.Wait()
		require.True(t, r.isEmpty())
		require.Zero(t, b.count())
	})
}

func TestRoom_theDatabaseIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, b, log := openRoom(t, 10)
		key := someKey()
		b.set(nil, errors.New("gone"))
		patient := r.waitAsync(t.Context(), key, false, 30*time.Second)
		impatient := r.waitAsync(t.Context(), key, false, 5*time.Second)
		require.Equal(t, visit{nil, true, 5 * time.Second}, <-impatient)
		require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("trying on")), "it is said once")
		b.set(key.row(Finished), nil)
		require.NotNil(t, (<-patient).news)
	})
}

// News and the end of the wait come in the same moment: the news wins, because
// nobody else may have been told.
func TestRoom_newsInTheLastMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _, _ := openRoom(t, 10)
		key := someKey()
		w := r.enter(key, false)
		r.deliver([]*storedKey{key.row("paid"), key.row("paid")})
		require.NotNil(t, r.leave(w))
		synctest.Wait()
		<-time.After(lookInterval)
		require.True(t, r.isEmpty())
	})
}
