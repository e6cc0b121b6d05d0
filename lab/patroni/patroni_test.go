//go:build patroni

package patroni_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
)

// kills is how often TestPatroni_synchronous kills the leader.
const kills = 10

func TestMain(m *testing.M) { os.Exit(labtest.Main{M: m}.Run()) }

// system is a cluster and the program with all its commands.
type system struct {
	*labtest.Fixture

	cluster *cluster
	api     *programtest.API
	others  []*programtest.Process
	mail    *programtest.MailServer
}

func newSystem(t *testing.T, synchronous bool) *system {
	t.Helper()
	c := newCluster(t, synchronous)
	pool, err := pgxpool.New(t.Context(), c.url())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	mail := programtest.NewMailServer(t, "")
	s := &system{
		cluster: c,
		Fixture: labtest.NewFixtureOn(t, pool, c.url(), "STEP_TIMEOUT=1s", "LEASE_DURATION=2s", "COMPLETER_GRACE=3s",
			"SMTP_URL=smtp://"+mail.Address, "RECEIPTS_FROM=shop@example.com"),
		mail: mail,
	}
	labtest.Run(t, s.Environ, "migrate", "up")
	s.CreateAccount()
	s.startAll()
	return s
}

func (s *system) startAll() {
	s.T.Helper()
	s.api = s.Serve(s.Environ, "--shutdown-delay", "0")
	s.others = []*programtest.Process{
		labtest.Start(s.T, s.Environ, "worker"),
		labtest.Start(s.T, s.Environ, "completer", "--every", "1s"),
	}
}

func (s *system) stopAll() {
	s.T.Helper()
	s.api.Stop()
	for _, other := range s.others {
		other.Stop()
	}
}

// load is clients that create orders until it is stopped.
type load struct {
	stopped chan struct{}
	clients *errgroup.Group
	failed  context.Context // ends with the error of a client

	mu        sync.Mutex
	responses map[string]programtest.Response // by key
	last      exchange
}

// exchange is when a client sent an attempt and received 201.
type exchange struct{ sent, received time.Time }

const clients = 8

// pause between two orders of a client, and between its attempts. Clients should wait for
// Retry-After; without the wait, the time of the next order is that of the service.
const pause = 100 * time.Millisecond

func (s *system) startLoad(name string) *load {
	l := &load{stopped: make(chan struct{}), responses: map[string]programtest.Response{}}
	l.clients, l.failed = errgroup.WithContext(context.Background())
	api := s.api
	for client := range clients {
		l.clients.Go(func() error {
			for n := 0; ; n++ {
				if err := l.order(api, fmt.Sprintf("patroni-%s-%d-%05d", name, client, n)); err != nil {
					return err
				}
				select {
				case <-l.stopped:
					return nil
				case <-l.failed.Done():
					return nil
				case <-time.After(pause):
				}
			}
		})
	}
	return l
}

// order retries until the response is 201. It returns an error, so that any goroutine may
// call it.
func (l *load) order(api *programtest.API, key string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for {
		sent := time.Now()
		got, err := api.Order(ctx, key)
		switch {
		case err != nil:
			return err
		case got.Status == http.StatusCreated:
			l.mu.Lock()
			defer l.mu.Unlock()
			l.responses[key] = got
			if sent.After(l.last.sent) {
				l.last = exchange{sent, time.Now()}
			}
			return nil
		case got.Status != http.StatusConflict && got.Status != http.StatusServiceUnavailable,
			got.Header.Get("Retry-After") == "":
			return fmt.Errorf("%s: %d %s", key, got.Status, got.Body)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%s: still %d %s", key, got.Status, got.Body)
		}
	}
}

// stop waits for the orders in progress.
func (l *load) stop(t *testing.T) {
	t.Helper()
	close(l.stopped)
	require.NoError(t, l.clients.Wait())
}

func (l *load) acknowledged() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.responses)
}

// untilMore waits for n more orders.
func (l *load) untilMore(t *testing.T, n int) {
	t.Helper()
	enough := l.acknowledged() + n
	until(t, fmt.Sprintf("%d more orders", n), func() bool {
		require.NoError(t, context.Cause(l.failed))
		return l.acknowledged() >= enough
	})
}

// untilAccepted waits for the 201 of an attempt that was sent after this time, and returns
// when it arrived.
func (l *load) untilAccepted(t *testing.T, after time.Time) time.Time {
	t.Helper()
	var received time.Time
	until(t, "an order is accepted", func() bool {
		require.NoError(t, context.Cause(l.failed))
		l.mu.Lock()
		defer l.mu.Unlock()
		received = l.last.received
		return l.last.sent.After(after)
	})
	return received
}

// abandon sends orders that no client repeats. Only the completer can finish them.
func (s *system) abandon(name string) {
	for n := range 4 {
		ctx, cancel := context.WithTimeout(context.Background(), programtest.WaitTimeout)
		go func() {
			defer cancel()
			_, _ = s.api.Order(ctx, fmt.Sprintf("patroni-abandoned-%s-%d", name, n))
		}()
	}
}

// requireExactlyOnce checks that each acknowledged order exists, and each order has one
// charge, one receipt and one response, which is replayed unchanged.
func (s *system) requireExactlyOnce(responses map[string]programtest.Response) {
	s.T.Helper()
	until(s.T, "all keys are finished and all receipts sent", func() bool {
		return s.Count("SELECT count(*) FROM idempotency_keys WHERE recovery_point <> 'finished'")+s.Count("SELECT count(*) FROM staged_jobs") == 0
	})
	orders := s.orders()
	require.Empty(s.T, s.Stripe.OrdersChargedTwice())
	if lost := missing(s.T, orders, responses); len(lost) > 0 {
		require.Fail(s.T, fmt.Sprintf("%d of %d acknowledged orders are lost", len(lost), len(responses))+s.cluster.describe())
	}
	for id, status := range orders {
		require.Equal(s.T, "paid", status)
		require.Len(s.T, s.Stripe.ChargesByOrder(id), 1)
	}
	require.Equal(s.T, len(orders), s.Count("SELECT count(*) FROM idempotency_keys WHERE response_code = 201"))
	require.Len(s.T, s.Stripe.Charges(), len(orders))
	receipts := map[string]bool{} // one may be sent again, if the deletion of its job was lost
	for _, mail := range s.mail.Received() {
		receipts[regexp.MustCompile(`receipt\.[0-9a-f-]{36}@`).FindString(mail)] = true
	}
	require.Len(s.T, receipts, len(orders))

	for key, first := range responses {
		again, err := s.api.Order(s.T.Context(), key)
		require.NoError(s.T, err)
		require.Equal(s.T, http.StatusCreated, again.Status, again.Body)
		require.Equal(s.T, first.Body, again.Body)
		require.Equal(s.T, "true", again.Header.Get("Idempotent-Replayed"))
	}
	require.Len(s.T, s.Stripe.Charges(), len(orders))
	s.untilCompared(len(orders))
	s.T.Logf("orders: %d; acknowledged to a client: %d; each has one charge, a receipt and one response", len(orders), len(responses))
}

// untilCompared repeats orders reconcile, which ignores activity within COMPLETER_GRACE,
// until it has compared all orders.
func (s *system) untilCompared(orders int) {
	s.T.Helper()
	until(s.T, "all orders are compared", func() bool {
		report := labtest.Run(s.T, s.Environ, "reconcile", "--since", "2h")
		require.Contains(s.T, report, "Discrepancies: 0,")
		return strings.Contains(report, fmt.Sprintf("Compared %d intents ", orders))
	})
}

// orders returns the status of each order.
func (s *system) orders() map[string]string {
	s.T.Helper()
	rows, err := s.Pool.Query(s.T.Context(), "SELECT id::text, status FROM orders")
	require.NoError(s.T, err)
	orders := map[string]string{}
	var id, status string
	_, err = pgx.ForEachRow(rows, []any{&id, &status}, func() error {
		orders[id] = status
		return nil
	})
	require.NoError(s.T, err)
	return orders
}

// missing returns the acknowledged orders that do not exist.
func missing(t *testing.T, orders map[string]string, responses map[string]programtest.Response) (lost []string) {
	t.Helper()
	for _, response := range responses {
		if id := decode(t, response).ID; orders[id] == "" {
			lost = append(lost, id)
		}
	}
	return lost
}

// order is the body of a 201.
type order struct {
	ID      string `json:"id"`
	Payment string `json:"payment_intent_id"`
}

func decode(t *testing.T, response programtest.Response) (o order) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(response.Body), &o))
	require.NotEmpty(t, o.ID)
	return o
}

// With a synchronous standby no acknowledged order is lost, and the program finds each new
// leader.
func TestPatroni_synchronous(t *testing.T) {
	s := newSystem(t, true)
	load := s.startLoad("synchronous")
	var outages []time.Duration
	for n := range kills {
		load.untilMore(t, 40)
		s.abandon(fmt.Sprint(n))
		leader, before := s.cluster.leader(), time.Now()
		kill(t, leader.folder)
		outage := load.untilAccepted(t, time.Now()).Sub(before)
		outages = append(outages, outage)
		rejoined := time.Now()
		s.cluster.startNode(leader)
		s.cluster.untilReplicated(true)
		t.Logf("kill %d: %s; the next order after %.1f s; two standbys again %.1f s later",
			n+1, leader.name, outage.Seconds(), time.Since(rejoined).Seconds())
	}
	load.untilMore(t, 40)
	load.stop(t)
	s.requireExactlyOnce(load.responses)
	slices.Sort(outages)
	median := (outages[(kills-1)/2] + outages[kills/2]) / 2
	t.Logf("from the kill to the next order: median %.1f s, maximum %.1f s; %d kills, %d pg_rewind",
		median.Seconds(), outages[kills-1].Seconds(), kills, s.cluster.rewinds())
	s.stopAll()
}

// A paused leader keeps its connections, so requests get no response from it. When it
// resumes, it must not confirm an order.
func TestPatroni_pausedLeader(t *testing.T) {
	newSystem(t, true).pauseLeader(func(*node) {})
}

// A leader that is paused within its heartbeat resumes with an old view of the cluster. It
// must not take the lock from its successor, whose orders would be lost.
func TestPatroni_pausedHeartbeat(t *testing.T) {
	s := newSystem(t, true)
	s.pauseLeader(s.holdHeartbeat)
}

// pauseLeader pauses the leader until another one has accepted orders.
func (s *system) pauseLeader(before func(leader *node)) {
	s.T.Helper()
	load := s.startLoad("paused")
	load.untilMore(s.T, 40)
	s.abandon("paused")
	leader := s.cluster.leader()
	before(leader)
	paused := time.Now()
	signal(s.T, leader.folder, syscall.SIGSTOP)
	outage := load.untilAccepted(s.T, time.Now()).Sub(paused)
	load.untilMore(s.T, 40)
	signal(s.T, leader.folder, syscall.SIGCONT)
	s.cluster.untilReplicated(true)
	load.untilMore(s.T, 40)
	load.stop(s.T)
	s.requireExactlyOnce(load.responses)
	s.T.Logf("from the pause to the next order: %.1f s; %d pg_rewind", outage.Seconds(), s.cluster.rewinds())
	s.stopAll()
}

// holdHeartbeat stops the session of the leader's Patroni, and waits until Patroni has sent
// a query to it. Patroni has then read the state of the cluster and not yet renewed its lock.
func (s *system) holdHeartbeat(leader *node) {
	s.T.Helper()
	var pid, port int
	require.NoError(s.T, s.Pool.QueryRow(s.T.Context(), `
		SELECT pid, client_port
		  FROM pg_stat_activity
		 WHERE application_name IN ('Patroni', 'Patroni heartbeat')
		 ORDER BY backend_start
		 LIMIT 1`).Scan(&pid, &port))
	require.NoError(s.T, syscall.Kill(pid, syscall.SIGSTOP))
	session := fmt.Sprintf(" 0100007F:%04X 0100007F:%04X 01 00000000:", leader.port, port)
	until(s.T, "Patroni has sent a query", func() bool {
		sockets, err := os.ReadFile("/proc/net/tcp")
		require.NoError(s.T, err)
		_, unread, found := strings.Cut(string(sockets), session)
		return found && !strings.HasPrefix(unread, "00000000 ")
	})
}

// With asynchronous standbys the newest rows can be lost. Reconcile lists each lost charge,
// and a retry of its key finds the same charge.
func TestPatroni_asynchronous(t *testing.T) {
	s := newSystem(t, false)
	load := s.startLoad("asynchronous")
	load.untilMore(t, 40)
	leader := s.cluster.leader()
	s.stopReplication()
	load.untilMore(t, 40)
	before := time.Now()
	kill(t, leader.folder)
	outage := load.untilAccepted(t, time.Now()).Sub(before)
	load.stop(t)
	s.stopAll()

	responses := maps.Clone(load.responses)
	lost := missing(t, s.orders(), responses)
	require.GreaterOrEqual(t, len(lost), 30, "acknowledged orders are lost")
	p := labtest.Start(t, s.Environ, "reconcile", "--lost-rows", "--since", "2h")
	require.Equal(t, 1, p.Wait(), p.Stderr.String())
	found, _, complete := strings.Cut(p.Stdout.String(), "Compared ")
	require.True(t, complete)
	var listed []string
	for decoder := json.NewDecoder(strings.NewReader(found)); decoder.More(); {
		var d struct {
			Kind   string
			Order  string `json:"order_id"`
			Detail string
		}
		require.NoError(t, decoder.Decode(&d))
		if d.Kind == "unrecorded_charge" && strings.Contains(d.Detail, "order missing") {
			listed = append(listed, d.Order)
		}
	}
	require.ElementsMatch(t, lost, listed, "reconcile lists the lost charges and no others")

	s.cluster.startNode(leader)
	s.cluster.untilReplicated(false)
	s.startAll()
	charges := len(s.Stripe.Charges())
	// Some orders that are not missing lost their last step. The completer repeated it, so
	// their responses have another paid_at.
	for key, response := range responses {
		require.NoError(t, load.order(s.api, key))
		require.Equal(t, decode(t, response), decode(t, load.responses[key]), "the retry has the same order and payment")
	}
	require.Len(t, s.Stripe.Charges(), charges, "no retry charges")
	require.Empty(t, s.Stripe.OrdersChargedTwice())
	// What a retry has just restored stays a discrepancy until it is older than COMPLETER_GRACE.
	until(t, "reconcile ends every discrepancy", func() bool {
		labtest.Start(t, s.Environ, "reconcile", "--since", "2h").Wait()
		return s.Count("SELECT count(*) FROM staged_jobs WHERE kind = 'discrepancy'") == 0
	})
	s.requireExactlyOnce(load.responses)
	t.Logf("the next order after %.1f s; %d of %d acknowledged orders were lost, and reconcile listed them; %d pg_rewind",
		outage.Seconds(), len(lost), len(responses), s.cluster.rewinds())
	s.stopAll()
}

// stopReplication pauses the processes that send rows to the standbys. A killed leader has
// then sent nothing that it committed later.
func (s *system) stopReplication() {
	s.T.Helper()
	rows, err := s.Pool.Query(s.T.Context(), "SELECT pid FROM pg_stat_replication")
	require.NoError(s.T, err)
	senders, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(s.T, err)
	require.Len(s.T, senders, 2)
	for _, pid := range senders {
		require.NoError(s.T, syscall.Kill(pid, syscall.SIGSTOP))
	}
}
