package earlierdesigns_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stripe/stripe-go/v79/paymentintent"
)

const (
	lockTTL     = 30 * time.Second
	responseTTL = 24 * time.Hour
)

var errInProgress = errors.New("409: in progress")

// lockedShop holds a lock with a TTL during a request. It stores the response in Redis,
// outside of the order's transaction.
type lockedShop struct {
	redis  *redis
	orders *pgxpool.Pool
	stripe paymentintent.Client
}

// order creates and charges an order. The end of ctx is the end of the process.
func (s lockedShop) order(ctx context.Context, key string) error {
	if s.redis.get("response:"+key) != "" {
		return nil
	}
	token := rand.Text()
	if !s.redis.setNX("lock:"+key, token, lockTTL) {
		return errInProgress
	}
	err := pgx.BeginFunc(ctx, s.orders, func(tx pgx.Tx) error {
		var id int
		if err := tx.QueryRow(ctx, "INSERT INTO orders DEFAULT VALUES RETURNING id").Scan(&id); err != nil {
			return err
		}
		return charge(ctx, s.stripe, fmt.Sprintf("order-%d", id))
	})
	if ctx.Err() != nil {
		return ctx.Err() // a process that was killed releases nothing
	}
	if err == nil {
		s.redis.set("response:"+key, "201", responseTTL)
	}
	s.redis.delete("lock:"+key, token)
	return err
}

// redis is an in-process store with the semantics of four commands of Redis. Its clock
// moves by advance only.
type redis struct {
	mu      sync.Mutex
	now     time.Duration
	entries map[string]entry
}

type entry struct {
	value string
	ends  time.Duration
}

// get is GET: an expired value is absent.
func (r *redis) get(key string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live(key)
}

// setNX is SET key value NX PX ttl: it reports whether the key was absent.
func (r *redis) setNX(key, value string, ttl time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live(key) != "" {
		return false
	}
	r.entries[key] = entry{value, r.now + ttl}
	return true
}

// set is SET key value PX ttl.
func (r *redis) set(key, value string, ttl time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries[key] = entry{value, r.now + ttl}
}

// delete is the script that Redis recommends for locks: DEL if the value is the caller's.
func (r *redis) delete(key, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live(key) == value {
		delete(r.entries, key)
	}
}

func (r *redis) live(key string) string {
	if e := r.entries[key]; r.now < e.ends {
		return e.value
	}
	return ""
}

func (r *redis) advance(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now += d
}

// failOver promotes a replica that has received nothing yet. Replication is asynchronous.
func (r *redis) failOver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.entries)
}
