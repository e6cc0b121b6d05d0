//go:build replication

package replication_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
)

// The primary becomes read-only under load and stays alive, so sessions that only read could stay
// on it. Two seconds after the first order on the promoted standby, credentials are those of the
// standby (R30).
func TestReplication_demotedPrimary(t *testing.T) {
	p := newPair(t)
	revokedAccount, revokedKey, err := accounts.Create(t.Context(), p.onPrimary, "Revoked")
	require.NoError(t, err)
	a := p.Serve(p.Environ, "--shutdown-delay", "0")

	const clients, more = 8, 100
	var mu sync.Mutex
	responses := map[string]programtest.Response{}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(responses)
	}
	var demoted, first time.Time // first is that of the first order on the new primary
	var group errgroup.Group
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for client := range clients {
		group.Go(func() error {
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Sprintf("demoted-order-%d-%04d", client, n)
				got, err := labtest.UntilPaid(context.Background(), a, key)
				if err != nil {
					return err
				}
				mu.Lock()
				responses[key] = got
				if !demoted.IsZero() && first.IsZero() {
					first = time.Now()
				}
				mu.Unlock()
			}
			return nil
		})
	}
	// probe reads until ctx ends, and returns when a status was received last.
	probe := func(key string, status int) *time.Time {
		var last time.Time
		account := *a
		account.Key = key
		group.Go(func() error {
			for ctx.Err() == nil {
				got, err := account.Do(context.Background(), http.MethodGet, "/v1/orders", "", nil)
				if err != nil {
					return err
				}
				if got.Status == status {
					last = time.Now()
				}
			}
			return nil
		})
		return &last
	}
	accepted := probe(revokedKey, http.StatusOK)
	programtest.Eventually(t, func() bool { return count() >= more })

	configure(t, p.onPrimary, "ALTER SYSTEM SET default_transaction_read_only = on")
	p.until(p.onPrimary, "SELECT current_setting('transaction_read_only')::boolean")
	p.until(p.onPrimary, "SELECT count(*) = 0 FROM pg_stat_activity WHERE state = 'active' AND backend_xid IS NOT NULL")
	p.until(p.onPrimary, "SELECT pg_current_wal_lsn() <= replay_lsn FROM pg_stat_replication")
	_, err = p.onStandby.Exec(t.Context(), "SELECT pg_promote()")
	require.NoError(t, err)
	p.until(p.onStandby, "SELECT NOT pg_is_in_recovery()")
	mu.Lock()
	demoted = time.Now()
	mu.Unlock()
	_, err = p.onStandby.Exec(t.Context(), "UPDATE api_keys SET revoked_at = now() WHERE account_id = $1", revokedAccount)
	require.NoError(t, err)
	_, newKey, err := accounts.Create(t.Context(), p.onStandby, "New")
	require.NoError(t, err)
	refused := probe(newKey, http.StatusUnauthorized)

	programtest.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return !first.IsZero() && time.Since(first) > 8*time.Second // longer than API keys are cached
	})
	stop()
	require.NoError(t, group.Wait())
	require.NotZero(t, *accepted)
	since := func(last time.Time) time.Duration { return max(0, last.Sub(first)).Round(time.Millisecond) }
	t.Logf("first order %s after the promotion; since then, the revoked key was accepted for %s, and the new account refused for %s; %d orders",
		first.Sub(demoted).Round(time.Millisecond), since(*accepted), since(*refused), len(responses))
	require.Less(t, since(*accepted), 2*time.Second)
	require.Less(t, since(*refused), 2*time.Second)
	p.requireConsistent(responses)
	a.Stop()
}
