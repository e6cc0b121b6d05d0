//go:build citus

package citus_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/migrations/dbtest"
)

const clients = 4 // of each shop

// Four schemas on two servers take orders, refunds and approvals and send receipts and events, while one of
// them moves to the other server and back, and each server of the cluster is killed. The schemas of the other
// server go on meanwhile.
func TestSchemas(t *testing.T) {
	c := startCluster(t)
	var shops []*shop
	for n := range 4 {
		shops = append(shops, startShop(t, c, fmt.Sprintf("shop_%d", n)))
	}
	operator, err := pgx.Connect(t.Context(), c.coordinator.url("postgres", "orders"))
	require.NoError(t, err)
	place := func(s *shop) (port int) {
		require.NoError(t, operator.QueryRow(t.Context(), "SELECT DISTINCT nodeport FROM citus_shards WHERE table_name::text LIKE $1", s.schema+".%").Scan(&port))
		return port
	}
	schemas := map[int]int{} // by server
	for _, s := range shops {
		schemas[place(s)]++
	}
	require.Equal(t, map[int]int{c.workers[0].port: 2, c.workers[1].port: 2}, schemas)

	begun := time.Now()
	done := make(chan struct{})
	group, ctx := errgroup.WithContext(t.Context())
	for _, s := range shops {
		group.Go(func() error { return s.buyUntil(ctx, done, clients) })
	}
	awaitPurchases := func(n int64, of ...*shop) {
		for _, s := range of {
			from := s.next.Load()
			programtest.Eventually(t, func() bool { return ctx.Err() != nil || s.next.Load() >= from+n })
		}
	}
	const moves = 6
	var during int64
	for range moves {
		awaitPurchases(20, shops...)
		programtest.Eventually(t, func() (dropped bool) { // in the background, what the last move left behind
			require.NoError(t, operator.QueryRow(t.Context(), "SELECT count(*) = 0 FROM pg_dist_cleanup").Scan(&dropped))
			return dropped
		})
		to := c.workers[0]
		if place(shops[0]) == to.port {
			to = c.workers[1]
		}
		before := shops[0].next.Load()
		c.shell(c.documented("Groups of accounts", shops[0].schema, to)[1])
		during += shops[0].next.Load() - before
		require.Equal(t, to.port, place(shops[0]))
	}
	require.NotZero(t, during)
	killed := time.Now()
	for _, worker := range c.workers {
		awaitPurchases(20, shops...)
		others := slices.DeleteFunc(slices.Clone(shops), func(s *shop) bool { return place(s) == worker.port })
		worker.kill()
		awaitPurchases(20, others...)
		worker.start()
	}
	awaitPurchases(20, shops...)
	require.NoError(t, operator.Close(t.Context()))
	c.coordinator.kill()
	c.coordinator.start()
	awaitPurchases(20, shops...)
	close(done)
	require.NoError(t, group.Wait())
	took := time.Since(begun)
	var paid, refunds, approved, refused, events, again int
	for _, s := range shops {
		again += s.requireConsistent(killed)
		paid, refunds, approved = paid+len(s.paid), refunds+len(s.refunds), approved+len(s.approved)
		refused, events = refused+len(s.refused), events+len(s.events)
	}
	t.Logf("%d orders, %d refunds, %d approvals, %d declined orders and %d events in four schemas in %s, and nothing was lost or doubled, "+
		"but %d receipts and events were sent again; %d orders in the schema that moved, during its %d moves",
		paid, refunds, approved, refused, events, took.Round(time.Second), again, during, moves)
}

// The same load, in turns on a plain schema of the coordinator and on a schema that Citus has placed. The test
// reports the ratio.
func TestThroughput(t *testing.T) {
	const orders = 500
	c := startCluster(t)
	placed := startShop(t, c, "placed")
	c.coordinator.exec("orders", "ALTER DATABASE orders SET citus.enable_schema_based_sharding = off")
	shops := []*shop{startShop(t, c, "plain"), placed}
	var ratios []float64
	for round := range 4 {
		var took [2]time.Duration
		for i, s := range shops {
			begun := time.Now()
			group, ctx := errgroup.WithContext(t.Context())
			for range 16 {
				group.Go(func() error {
					for n := s.next.Add(1); n <= int64(orders*(round+1)); n = s.next.Add(1) {
						if _, err := s.client.CreateOrder(ctx, keyOf(n), tea("pm_card_visa")); err != nil {
							return err
						}
					}
					return nil
				})
			}
			require.NoError(t, group.Wait())
			took[i] = time.Since(begun)
			s.next.Store(int64(orders * (round + 1)))
		}
		if round == 0 {
			continue // caches are empty
		}
		ratios = append(ratios, took[0].Seconds()/took[1].Seconds())
		t.Logf("%d orders, 16 clients: plain %.0f orders/s, on Citus %.0f orders/s, ratio %.2f", orders,
			orders/took[0].Seconds(), orders/took[1].Seconds(), ratios[len(ratios)-1])
	}
	slices.Sort(ratios)
	t.Logf("median ratio %.2f", ratios[1])
}

// Citus rejects each form that the program does without. A plain server accepts it.
func TestStatements_rejected(t *testing.T) {
	c := startCluster(t)
	placed := c.fixture("placed")
	plain := dbtest.New(t)
	for _, f := range forms(t, plain) {
		for _, example := range f.examples {
			_, err := plain.Exec(t.Context(), example)
			require.NoError(t, err, example)
			_, err = placed.Pool.Exec(t.Context(), example)
			require.Error(t, err, "Citus accepts this by now: %s", example)
		}
	}
}
