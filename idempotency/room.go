package idempotency

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// The waiting room: requests for a key that another run holds may wait here for
// its answer instead of asking again and again.
//
// Who waits is a goroutine blocked on a channel, and holds neither a connection
// nor a transaction (R6). While anybody waits, one poller per process asks the
// database for news of all awaited keys in one query, by primary key. The query
// returns only rows that have news for somebody, so that it stays small however
// many wait, and what it returns is handed to the waiters as it is: five hundred
// requests that wait for one key cost one small query per interval, and none when
// it finishes. Runs in this process make the poller look at once; those in other
// processes need nothing but the row that they write anyway.
//
// There is no news that could be missed. A waiter enters first, and the next look
// at the database begins after that; a finished key stays finished; and of a key
// that was given back every look tells until somebody has taken it.

const (
	// lookInterval is how long news from another process may take to be heard:
	// short beside a charge, and five queries a second are nothing to a database.
	lookInterval = 200 * time.Millisecond

	// lookPause keeps the looks apart that runs of this process ask for.
	lookPause = 20 * time.Millisecond

	// runPause is how long ago the last run of a key must have begun before a
	// waiter begins another one: else all who wait would call a provider that is
	// down one behind the other, as fast as it refuses.
	runPause = time.Second
)

// room is where those wait whose keys others work on.
type room struct {
	capacity int
	look     func(ctx context.Context, keys []awaited) ([]*storedKey, error)
	logger   *slog.Logger
	nudged   chan struct{}
	open     context.Context // ends when the room is closed
	close    context.CancelFunc

	mu      sync.Mutex
	waiting map[keyRef][]*waiter // in the order they came
	count   int                  // of them
	looking bool                 // the poller is alive
}

// keyRef names a key's row (R20).
type keyRef struct{ accountID, id uuid.UUID }

// waiter is somebody who waits for a key.
type waiter struct {
	key     keyRef
	watches bool            // only looks on, and never takes the key over
	news    chan *storedKey // has room for the one that it gets
}

// awaited is a key, and by whom it is waited for.
type awaited struct {
	keyRef
	watched bool // by somebody who only looks on
	wanted  bool // by somebody who would take it over
}

func newRoom(capacity int, look func(context.Context, []awaited) ([]*storedKey, error), logger *slog.Logger) *room {
	open, closeRoom := context.WithCancel(context.Background())
	return &room{
		capacity: capacity,
		look:     look,
		logger:   logger,
		nudged:   make(chan struct{}, 1),
		open:     open,
		close:    closeRoom,
		waiting:  map[keyRef][]*waiter{},
	}
}

// wait waits for news of the key: its row, finished, or free for this waiter to
// take over, or with watches in need of review. Without news it returns nil when
// ctx ends; waited is false when it did not wait that long, because the room is
// full or closed.
func (r *room) wait(ctx context.Context, key keyRef, watches bool) (news *storedKey, waited bool) {
	w := r.enter(key, watches)
	if w == nil {
		return nil, false
	}
	select {
	case news = <-w.news:
		return news, true
	case <-ctx.Done():
		waited = true
	case <-r.open.Done():
	}
	if news = r.leave(w); news != nil {
		return news, true // it came in the last moment, and may be for nobody else
	}
	return nil, waited
}

func (r *room) enter(key keyRef, watches bool) *waiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count >= r.capacity || r.open.Err() != nil {
		return nil
	}
	w := &waiter{key: key, watches: watches, news: make(chan *storedKey, 1)}
	r.waiting[key] = append(r.waiting[key], w)
	r.count++
	if !r.looking {
		r.looking = true
		go r.keepLooking()
	}
	return w
}

// leave gives the seat up, and returns the news if there was any.
func (r *room) leave(w *waiter) *storedKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.waiting[w.key], w); i >= 0 {
		r.keep(w.key, slices.Delete(r.waiting[w.key], i, i+1))
		r.count--
	}
	if r.count == 0 {
		r.wake() // to go home
	}
	select {
	case news := <-w.news:
		return news
	default:
		return nil
	}
}

// keep notes who still waits for a key.
func (r *room) keep(key keyRef, waiters []*waiter) {
	if len(waiters) == 0 {
		delete(r.waiting, key)
		return
	}
	r.waiting[key] = waiters
}

// nudge makes the poller look at once if somebody waits for the key.
func (r *room) nudge(key keyRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting[key]) > 0 {
		r.wake()
	}
}

func (r *room) wake() {
	select {
	case r.nudged <- struct{}{}:
	default: // it is awake
	}
}

// keepLooking is the poller. It lives while somebody waits.
func (r *room) keepLooking() {
	failing := false
	for {
		r.pause()
		keys := r.awaited()
		if len(keys) == 0 {
			return
		}
		found, err := r.look(r.open, keys)
		if err != nil && !failing {
			// Nobody is stranded: each waiter has an end of its own.
			r.logger.Warn("idempotency: cannot look for news of awaited keys, trying on", "keys", len(keys), "error", err)
		}
		failing = err != nil
		r.deliver(found)
	}
}

// pause waits until it is time for the next look.
func (r *room) pause() {
	select {
	case <-time.After(lookPause):
	case <-r.open.Done():
	}
	select {
	case <-time.After(lookInterval - lookPause):
	case <-r.nudged:
	case <-r.open.Done():
	}
}

// awaited lists the keys that are waited for. When there are none, the poller has
// ended with that.
func (r *room) awaited() []awaited {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == 0 || r.open.Err() != nil {
		r.looking = false
		return nil
	}
	keys := make([]awaited, 0, len(r.waiting))
	for ref, waiters := range r.waiting {
		key := awaited{keyRef: ref}
		for _, w := range waiters {
			key.watched = key.watched || w.watches
			key.wanted = key.wanted || !w.watches
		}
		keys = append(keys, key)
	}
	return keys
}

// deliver hands rows to those they are news for: an answer to everybody, a key
// that is free to the one who has waited longest and would take it.
func (r *room) deliver(found []*storedKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, stored := range found {
		ref := keyRef{stored.accountID, stored.id}
		free := !stored.leased && stored.readAt.Sub(stored.lastRunAt) >= runPause
		var left []*waiter
		for _, w := range r.waiting[ref] {
			switch {
			case stored.point == Finished, w.watches && stored.reviewAt != nil:
				w.news <- stored
			case !w.watches && free:
				w.news <- stored
				free = false
			default:
				left = append(left, w)
			}
		}
		r.count -= len(r.waiting[ref]) - len(left)
		r.keep(ref, left)
	}
}

// newsSQL finds those of the awaited keys that have news for somebody, see
// [room.deliver]. OFFSET 0 keeps it to a look by primary key for each of them.
const newsSQL = `
SELECT` + storedColumns + `
  FROM unnest($1::uuid[], $2::uuid[], $5::boolean[], $6::boolean[]) AS awaited (account_id, id, watched, wanted)
       CROSS JOIN LATERAL (
           SELECT *
             FROM idempotency_keys
            WHERE account_id = awaited.account_id
              AND id = awaited.id
           OFFSET 0
       ) AS k
 WHERE k.recovery_point = 'finished'
    OR (awaited.watched AND k.needs_review_at IS NOT NULL)
    OR (
        awaited.wanted
        AND coalesce(k.locked_at <= now() - $3::interval, true)
        AND k.last_run_at <= now() - $4::interval
    )`

func (e *Engine) lookForNews(ctx context.Context, keys []awaited) ([]*storedKey, error) {
	accounts, ids := make([]uuid.UUID, len(keys)), make([]uuid.UUID, len(keys))
	watched, wanted := make([]bool, len(keys)), make([]bool, len(keys))
	for i, key := range keys {
		accounts[i], ids[i], watched[i], wanted[i] = key.accountID, key.id, key.watched, key.wanted
	}
	var found []*storedKey
	err := e.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, newsSQL, accounts, ids, e.lockTimeout, runPause, watched, wanted)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*storedKey, error) { return scanKey(row) })
		return err
	})
	return found, err
}

// await waits for the answer of another run, for which ErrInProgress was given.
// Whatever news there is goes through the arms of R2 as if the request came now.
func (e *Engine) await(ctx context.Context, req Request, op Operation, result Result, err error) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, req.Wait)
	defer cancel()
	hash := fingerprint(req.Method, req.Path, req.Params)
	for {
		news, waited := e.room.wait(ctx, keyRef{req.AccountID, result.KeyID}, false)
		if news == nil {
			result.Waited = waited
			return result, err
		}
		next, refused := e.answer(context.WithoutCancel(ctx), news, hash, op, req.Claimed)
		if errors.Is(refused, ErrOverloaded) || errors.Is(refused, ErrShareTaken) {
			continue // the key stays free, and the next look says so again
		}
		result, err = next, refused
		if !errors.Is(err, ErrInProgress) { // else somebody else was faster
			result.Waited = true
			return result, err
		}
	}
}

// Watch returns one key of the account, or [ErrNotFound], as soon as the key is
// finished or needs review, or else as it is after wait. It says whether it waited
// as it was asked to: it does not when too many wait already, or when
// [Engine.StopWaiting] was called.
func (e *Engine) Watch(ctx context.Context, accountID, id uuid.UUID, wait time.Duration) (status Status, waited bool, err error) {
	status, err = e.Status(ctx, accountID, id)
	if err != nil || wait <= 0 || status.Point == Finished || status.NeedsReviewAt != nil {
		return status, false, err
	}
	patience, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	news, waited := e.room.wait(patience, keyRef{accountID, id}, true)
	if news != nil {
		return news.status(), true, nil
	}
	status, err = e.Status(ctx, accountID, id)
	return status, waited, err
}

// Waiting is how many wait in this process.
func (e *Engine) Waiting() int {
	e.room.mu.Lock()
	defer e.room.mu.Unlock()
	return e.room.count
}

// StopWaiting sends away everybody who waits, and everybody who would: they get
// what they would have got without waiting. For a process that stops.
func (e *Engine) StopWaiting() { e.room.close() }
