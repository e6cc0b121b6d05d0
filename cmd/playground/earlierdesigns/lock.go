package earlierdesigns

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
	// LockTTL is the longest time for which a request holds its lock.
	LockTTL     = 30 * time.Second
	responseTTL = 24 * time.Hour
)

// ErrInProgress means that another request holds the lock.
var ErrInProgress = errors.New("409: in progress")

// LockedShop holds a lock with a TTL, and stores the response in Redis, outside of the order's
// transaction.
type LockedShop struct {
	Redis  *Redis
	DB     *pgxpool.Pool
	Stripe paymentintent.Client
}

// Order creates and charges an order. Cancelling ctx simulates that the process is killed.
func (s LockedShop) Order(ctx context.Context, key string) error {
	if s.Redis.get("response:"+key) != "" {
		return nil
	}
	token := rand.Text()
	if !s.Redis.setNX("lock:"+key, token, LockTTL) {
		return ErrInProgress
	}
	err := pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		var id int
		if err := tx.QueryRow(ctx, "INSERT INTO lock_design.orders DEFAULT VALUES RETURNING id").Scan(&id); err != nil {
			return err
		}
		return Charge(ctx, s.Stripe, fmt.Sprintf("order-%d", id))
	})
	if ctx.Err() != nil {
		return ctx.Err() // a process that was killed releases nothing
	}
	if err == nil {
		s.Redis.set("response:"+key, "201", responseTTL)
	}
	s.Redis.delete("lock:"+key, token)
	return err
}

// PaidOrders returns the number of paid orders.
func (s LockedShop) PaidOrders(ctx context.Context) (n int, err error) {
	return n, s.DB.QueryRow(ctx, "SELECT count(*) FROM lock_design.orders").Scan(&n)
}

// Redis is an in-process store with four commands of Redis. Only Advance moves its clock.
type Redis struct {
	mu      sync.Mutex
	now     time.Duration
	entries map[string]entry
}

type entry struct {
	value string
	ends  time.Duration
}

// get is GET.
func (r *Redis) get(key string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live(key)
}

// setNX is SET key value NX PX ttl.
func (r *Redis) setNX(key, value string, ttl time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live(key) != "" {
		return false
	}
	if r.entries == nil {
		r.entries = map[string]entry{}
	}
	r.entries[key] = entry{value, r.now + ttl}
	return true
}

// set is SET key value PX ttl.
func (r *Redis) set(key, value string, ttl time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries[key] = entry{value, r.now + ttl}
}

// delete is the script that Redis recommends for unlocking: it deletes the key only if it has the value.
func (r *Redis) delete(key, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live(key) == value {
		delete(r.entries, key)
	}
}

func (r *Redis) live(key string) string {
	if e := r.entries[key]; r.now < e.ends {
		return e.value
	}
	return ""
}

// Advance moves the clock forward.
func (r *Redis) Advance(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now += d
}

// FailOver promotes an empty replica. Replication is asynchronous, so it may have received nothing.
func (r *Redis) FailOver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.entries)
}
