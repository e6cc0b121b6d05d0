package events_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/client"
	"example.com/orders-api/events"
	"example.com/orders-api/internal/foreigntest"
	"example.com/orders-api/internal/jobs"
)

func TestStageTx(t *testing.T) {
	t.Parallel()
	const selectStaged = "SELECT id::text || ' ' || kind || ' ' || args::text FROM staged_jobs ORDER BY created_at, args"
	f := newFixture(t)
	order, refund := uuid.MustParse("3eeb7e96-e59c-840f-9cb1-a089daba079f"), uuid.MustParse("b8f0a3c1-7d42-8e19-a5c6-20d4f1e93b77")
	once := []events.ShopEvent{
		{Type: events.OrderPaid, OrderID: order},
		{Type: events.RefundCreated, OrderID: order, RefundID: refund},
	}
	batch := &pgx.Batch{}
	events.Stager(false).StageTx(batch, f.account, once[0])
	require.Zero(t, batch.Len(), "the service has no endpoint")

	f.stage(once...)
	f.stage(once...)
	want := []string{
		`3297858b-30ef-8357-97c2-538c2f5e19c7 event {"type": "order.paid", "order_id": "` + order.String() + `"}`,
		`b00a8cb1-6876-8eb4-b403-182afa971a4c event {"type": "refund.created", "order_id": "` + order.String() + `", "refund_id": "` + refund.String() + `"}`,
	}
	require.Equal(t, want, f.strings(selectStaged), "once each")

	updated := events.ShopEvent{Type: events.DisputeUpdated, OrderID: order, DisputeID: "dp_1"}
	f.stage(updated, updated)
	all := f.strings(selectStaged)
	require.Len(t, all, 4, "each update is an event")
	for _, job := range all[2:] {
		require.Contains(t, job, `{"type": "dispute.updated", "order_id": "`+order.String()+`", "dispute_id": "dp_1"}`)
	}
}

func TestDeliver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	endpoint := newShop(t, nil)
	order, refund := uuid.New(), uuid.New()
	f.stage(events.ShopEvent{Type: events.RefundUpdated, OrderID: order, RefundID: refund})
	id := f.strings("SELECT id::text FROM staged_jobs")[0]

	worker := f.worker(endpoint.URL+"/events?shop=1", firstSecret, secondSecret)
	f.pass(worker, jobs.Result{jobs.Done: 1})
	f.pass(worker, jobs.Result{})
	require.Empty(t, f.strings("SELECT id::text FROM staged_jobs"))
	require.Equal(t, []string{"event.done order " + order.String()}, f.strings("SELECT action || ' ' || resource_type || ' ' || resource_id FROM audit_records"))

	require.Len(t, endpoint.received(), 1)
	got := endpoint.received()[0]
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	require.Equal(t, id, got.header.Get("webhook-id"))
	for _, secret := range []string{firstSecret, secondSecret} {
		event, err := client.VerifyEvent([]string{secret}, got.header, []byte(got.body), time.Now())
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), event.Timestamp, time.Minute)
		require.JSONEq(t, `{"id":"`+id+`","type":"refund.updated","timestamp":"`+event.Timestamp.Format("2006-01-02T15:04:05.000000Z")+
			`","account_id":"`+f.account.String()+`","data":{"order_id":"`+order.String()+`","refund_id":"`+refund.String()+`"}}`, got.body)
		require.Equal(t, client.Event{
			ID: id, Type: "refund.updated", Timestamp: event.Timestamp, AccountID: f.account.String(),
			Data: client.EventData{OrderID: order.String(), RefundID: refund.String()},
		}, event)
	}
}

// What becomes of an event, for what an endpoint can do. Nothing of its URL's path or of its responses is
// stored or logged.
func TestDeliver_faults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		respond http.HandlerFunc
		timeout time.Duration // by default that of the program
		sent    bool
		absent  bool
		pause   time.Duration
		error   string
	}{
		"accepts":                    {respond: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }, sent: true},
		"500 with a body":            {respond: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "canary", http.StatusInternalServerError) }, error: "the endpoint responded with status 500"},
		"503 with Retry-After":       {respond: later("120"), pause: 2 * time.Minute, error: "the endpoint responded with status 503"},
		"503 with a far Retry-After": {respond: later("999999999"), pause: 15 * time.Minute, error: "the endpoint responded with status 503"},
		"503 with a useless one":     {respond: later("canary"), error: "the endpoint responded with status 503"},
		"does not respond":           {respond: hang, timeout: time.Second, error: "no response in 10s"},
		"switches protocols":         {respond: foreigntest.Answers(t, 0)["101, and the connection stays open"], error: "the endpoint responded with status 101"},
		"closes the connection":      {respond: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, error: "the connection ended without a response of HTTP"},
		"redirects": {respond: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/canary", http.StatusFound)
		}, error: "the endpoint responded with status 302"},
		"is not there": {absent: true, error: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			endpoint := newShop(t, test.respond)
			if test.absent {
				endpoint.Close()
			}
			f.stagePaid(1)
			worker := f.worker(endpoint.URL + "/canary?token=canary")
			worker.Timeout = cmp.Or(test.timeout, worker.Timeout)
			start := time.Now()
			result, err := worker.RunOnce(t.Context())
			require.NoError(t, err)
			require.Less(t, time.Since(start), foreigntest.Held)
			require.Equal(t, !test.absent, len(endpoint.received()) == 1)
			left := f.strings("SELECT coalesce(last_error, '') FROM staged_jobs WHERE failed_at IS NULL AND attempt = 1")
			if test.sent {
				require.Equal(t, jobs.Result{jobs.Done: 1}, result)
				require.Empty(t, left)
				return
			}
			require.Equal(t, jobs.Result{jobs.Retried: 1}, result)
			require.Len(t, left, 1)
			require.Contains(t, left[0], test.error)
			var pause time.Duration
			require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT run_at - now() FROM staged_jobs").Scan(&pause))
			require.InDelta(t, cmp.Or(test.pause, time.Second).Seconds(), pause.Seconds(), 30)
			for _, text := range []string{left[0], f.log.String()} {
				require.NotContains(t, text, "canary")
			}
		})
	}
}

// A delivery ends within its limit, whatever the endpoint sends.
func TestDeliver_foreignServer(t *testing.T) {
	t.Parallel()
	for name, respond := range foreigntest.Answers(t, http.StatusOK) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.stagePaid(1)
			worker := f.worker(newShop(t, respond).URL)
			worker.Timeout = time.Second
			outcome := jobs.Retried
			if name == "300 MB" || name == "a body without an end" {
				outcome = jobs.Done // the status decides
			}
			start := time.Now()
			f.pass(worker, jobs.Result{outcome: 1})
			require.Less(t, time.Since(start), foreigntest.Held)
		})
	}
}

func later(value string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", value)
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// An event that is slow to be accepted delays no other: the first response comes after the second event.
func TestDeliver_slow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var once sync.Once
	arrived, second := make(chan struct{}), make(chan struct{})
	endpoint := newShop(t, func(_ http.ResponseWriter, r *http.Request) {
		first := false
		once.Do(func() { first = true })
		if first {
			close(arrived)
			<-second
			return
		}
		close(second)
	})
	f.stagePaid(1)
	loop := f.worker(endpoint.URL).Loop()
	require.NoError(t, loop.Pass(t.Context()))
	<-arrived
	f.stagePaid(1)
	require.NoError(t, loop.Pass(t.Context()))
	loop.Wait()
	require.Empty(t, f.strings("SELECT id::text FROM staged_jobs"))
}

// An endpoint that never responds, and for which more events wait than are sent at once, delays no job of
// another kind, and a stop only for the time of an attempt.
func TestDeliver_dead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	arrived := make(chan struct{}, 1000)
	endpoint := newShop(t, func(w http.ResponseWriter, r *http.Request) { arrived <- struct{}{}; hang(w, r) })
	f.stagePaid(200)
	ctx, stop := context.WithCancel(t.Context())
	worker := f.worker(endpoint.URL)
	worker.Timeout = 3 * time.Second
	receipts := *worker
	done := make(chan struct{})
	receipts.Kind, receipts.Do = "receipt", func(context.Context, jobs.Job) error { close(done); return nil }
	var loops errgroup.Group
	for _, w := range []*jobs.Worker{worker, &receipts} {
		loops.Go(func() error {
			loop := w.Loop()
			defer loop.Wait()
			for ctx.Err() == nil {
				if err := loop.Pass(ctx); err != nil {
					return err
				}
				select {
				case <-time.After(10 * time.Millisecond):
				case <-ctx.Done():
				}
			}
			return nil
		})
	}
	for range 50 {
		<-arrived
	}
	f.exec("INSERT INTO staged_jobs (account_id, id, kind, args) VALUES ($1, $1, 'receipt', '{}')", f.account)
	<-done
	stop()
	require.NoError(t, loops.Wait())
	require.NotContains(t, f.log.String(), "not recorded")
}

// A backlog of an hour is delivered within 20 minutes after the endpoint is back. The longest pause of an event is 18
// minutes. 28 events a second make 100,000 in an hour, so 111 a second must be delivered, with the new ones. An endpoint
// that takes a tenth of a second gets 500 if 50 are in flight at once: here it answers none before it has 50.
func TestDeliver_backlog(t *testing.T) {
	t.Parallel()
	const backlog, atOnce = 200, 50
	f := newFixture(t)
	var mu sync.Mutex
	waiting, complete := 0, make(chan struct{})
	endpoint := newShop(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		together := complete
		if waiting++; waiting == atOnce {
			close(complete)
			waiting, complete = 0, make(chan struct{})
		}
		mu.Unlock()
		select {
		case <-together:
		case <-r.Context().Done(): // fewer are in flight, so the attempt times out
		}
	})
	f.stagePaid(backlog)
	f.pass(f.worker(endpoint.URL), jobs.Result{jobs.Done: backlog})
	for attempt := range jobs.MaxAttempts {
		require.LessOrEqual(t, jobs.Backoff(attempt+1), 18*time.Minute)
	}
}

// An event of a newer version waits for a newer worker.
func TestDeliver_newerVersion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	endpoint := newShop(t, nil)
	for i, args := range []string{`{"type":"order.paid","order_id":"` + uuid.NewString() + `","gift":{"to":"canary"}}`, `{"type":"order.paid","order_id":7}`, `[1]`} {
		f.exec("INSERT INTO staged_jobs (account_id, id, kind, args) VALUES ($1, gen_random_uuid(), 'event', $2)", f.account, args)
		f.pass(f.worker(endpoint.URL), jobs.Result{jobs.Retried: 1})
		require.Len(t, f.strings("SELECT id::text FROM staged_jobs WHERE failed_at IS NULL AND last_error LIKE '%newer version%'"), i+1, fmt.Sprint(args))
	}
	require.Empty(t, endpoint.received())
}
