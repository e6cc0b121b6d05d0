package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

func init() {
	if err := flag.Set("rapid.checks", "40"); err != nil {
		panic(err)
	}
}

// Each round is one paid order, with drawn, concurrent actions by two instances of the service: refunds of the
// API, webhooks, readings of the list, jobs, and at the provider refunds of the dashboard, late failures and
// disputes. Then every fault ends, and the jobs are worked off. Each change must be recorded once and reported
// to the shop once, and an operator must know each refund that failed after a success.
//
// A failure prints its seed (-rapid.seed=N).
func TestChanges_randomRounds(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Connections: 4, Concurrent: true, Unchecked: true}, SetEndpoint)
	instances := []*Shop{newInstance(t, f), newInstance(t, f)}
	totals := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		r := newChangesRound(t, rt, f, instances)
		defer r.end()
		rt.Repeat(map[string]func(*rapid.T){
			"refund":           r.refund,
			"late response":    func(rt *rapid.T) { r.inject(stripetest.HoldResponse, MakeRefund, 1); r.refund(rt) },
			"refund elsewhere": r.refundAtDashboard,
			"refund settles":   r.settle,
			"another settles":  r.settle,
			"dispute":          r.dispute,
			"webhook":          r.webhook,
			"list": func(rt *rapid.T) {
				s := r.instance(rt)
				r.start(func() { _ = readList(s) })
			},
			"worker":         func(rt *rapid.T) { s := r.instance(rt); r.start(func() { r.work(s) }) },
			"completer":      func(rt *rapid.T) { s := r.instance(rt); r.start(func() { r.complete(s) }) },
			"lease ends":     func(*rapid.T) { r.endLeases() },
			"provider fails": r.fail,
			"all have ended": func(*rapid.T) { r.release(); r.running.Wait() },
		})
		r.finish(rt, totals)
	})
	text, err := json.Marshal(totals)
	require.NoError(t, err)
	t.Log(string(text))
	checkChanges(t, f)
	require.Empty(t, staged(f))
	require.Zero(t, f.Count("SELECT count(*) FROM staged_jobs WHERE kind = 'discrepancy' AND last_error <> 'refund_failed_late'"))
}

// newInstance returns another instance of the service, as another process has it. There are no globals.
func newInstance(t *testing.T, f *Fixture) *Shop {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), f.Pool.Config())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	shop := New(t, Options{Pool: pool, Account: f.Account, Fake: f.Stripe})
	shop.Orders.Events = true
	return shop
}

func readList(s *Shop) error { return s.Changes.ReadList(context.Background()) }

type changesRound struct {
	*Fixture

	instances []*Shop
	keys      map[idempotency.Key]string // the bodies of the refunds
	patience  time.Duration              // with an action, see start
	running   sync.WaitGroup
	faults    []*stripetest.Injection
}

func newChangesRound(t *testing.T, rt *rapid.T, f *Fixture, instances []*Shop) *changesRound {
	t.Helper()
	r := &changesRound{Fixture: f.WithNewKey(t), instances: instances, keys: map[idempotency.Key]string{}}
	card := rapid.SampledFrom([]string{Visa, PendingRefund, PendingRefund, refundFail, refundFail}).Draw(rt, "card")
	r.Stripe.EditEvents(func(e *stripetest.Event) { e.Created -= 3600 }) // those of earlier rounds are read
	r.Do(CreatePaid(card))
	r.patience = rapid.SampledFrom([]time.Duration{0, 50 * time.Millisecond, 50 * time.Millisecond}).Draw(rt, "patience")
	return r
}

// start lets an action run beside the following ones if a fault delays it. Otherwise they meet its effect.
func (r *changesRound) start(act func()) {
	done := make(chan struct{})
	r.running.Go(func() {
		defer close(done)
		act()
	})
	select {
	case <-done:
	case <-time.After(r.patience):
	}
}

func (r *changesRound) instance(rt *rapid.T) *Shop {
	return rapid.SampledFrom(r.instances).Draw(rt, "instance")
}

func (r *changesRound) refund(rt *rapid.T) {
	key := r.Key + idempotency.Key(rapid.SampledFrom([]string{"-refund-1", "-refund-2", "-refund-3"}).Draw(rt, "key"))
	if r.keys[key] == "" {
		r.keys[key] = rapid.SampledFrom([]string{`{"amount":500}`, `{"amount":1800}`, `{}`}).Draw(rt, "body")
	}
	s, req := r.instance(rt), RefundRequest(r.T, r.Account, OrderID(r.Account, r.Key), key, r.keys[key])
	r.start(func() { _, _ = s.Refund(context.Background(), req) })
}

func (r *changesRound) refundAtDashboard(rt *rapid.T) {
	amount := rapid.SampledFrom([]int64{500, 300}).Draw(rt, "amount")
	if _, err := r.Stripe.RefundAtDashboard(r.IntentID(), amount, ""); err != nil {
		rt.Skip("the order is refunded in full already")
	}
}

// made returns the refunds of the order.
func (r *changesRound) made() []stripetest.Refund {
	intent := r.IntentID()
	return slices.DeleteFunc(r.Stripe.Refunds(), func(made stripetest.Refund) bool { return made.IntentID != intent })
}

func (r *changesRound) settle(rt *rapid.T) {
	made := r.made()
	made = made[max(0, len(made)-2):]
	success := rapid.SampledFrom([]bool{true, false, false}).Draw(rt, "success")
	if len(made) == 0 || r.Stripe.Settle(rapid.SampledFrom(made).Draw(rt, "refund").ID, success) != nil {
		rt.Skip("no refund can settle")
	}
}

func (r *changesRound) disputes() []stripetest.Dispute {
	intent := r.IntentID()
	return slices.DeleteFunc(r.Stripe.Disputes(), func(d stripetest.Dispute) bool { return d.IntentID != intent })
}

// dispute begins one, or moves it on, so that no status occurs twice.
func (r *changesRound) dispute(rt *rapid.T) {
	statuses := []string{"needs_response", "under_review", "lost", "won", "won"}
	all, err := r.disputes(), error(nil)
	if len(all) == 0 {
		_, err = r.Stripe.Dispute(r.IntentID(), 700, "fraudulent", statuses[0])
	} else if next := statuses[slices.Index(statuses, all[0].Status)+1]; next != all[0].Status {
		err = r.Stripe.UpdateDispute(all[0].ID, next)
	}
	if err != nil {
		rt.Skip("a call that is in progress has locked the intent")
	}
}

func (r *changesRound) webhook(rt *rapid.T) {
	intent := r.IntentID()
	events := slices.DeleteFunc(events(r.Fixture), func(e stripetest.Event) bool { return e.IntentID != intent })
	if len(events) == 0 {
		rt.Skip("there is no event")
	}
	e, s := rapid.SampledFrom(events).Draw(rt, "event"), r.instance(rt)
	payload, signature := e.Sign(WebhookSecret, time.Now())
	r.start(func() { _, _ = handleEvent(context.Background(), s, payload, signature) })
}

func (r *changesRound) work(s *Shop) {
	r.Exec("UPDATE staged_jobs SET run_at = now() WHERE kind = 'provider_change' AND failed_at IS NULL AND last_error IS NOT NULL")
	_, _ = s.Changes.Worker().RunOnce(context.Background())
}

func (r *changesRound) complete(s *Shop) {
	_ = readList(s)
	r.work(s)
}

func (r *changesRound) fail(rt *rapid.T) {
	kind := rapid.SampledFrom([]stripetest.Fault{
		stripetest.CloseBefore, stripetest.CloseAfter, stripetest.Unavailable, stripetest.Forbidden,
		stripetest.HoldArrival, stripetest.HoldRunning, stripetest.HoldResponse,
	}).Draw(rt, "fault")
	call := rapid.SampledFrom([]string{MakeRefund, ListRefunds, ListDisputes, ListEvents}).Draw(rt, "call")
	r.inject(kind, call, rapid.IntRange(1, 4).Draw(rt, "times"))
}

func (r *changesRound) inject(kind stripetest.Fault, call string, times int) {
	r.faults = append(r.faults, r.Stripe.Inject(stripetest.Rule{Fault: kind, Endpoint: call, Times: times}))
}

func (r *changesRound) release() {
	for _, fault := range r.faults {
		fault.Release()
	}
	r.faults = nil
}

func (r *changesRound) endLeases() {
	r.Exec("UPDATE idempotency_keys SET locked_at = locked_at - $1::interval WHERE recovery_point <> 'finished'", LeaseDuration)
}

func (r *changesRound) end() {
	r.release()
	r.running.Wait()
	r.endLeases()
}

func (r *changesRound) finish(rt *rapid.T, totals map[string]int) {
	r.end()
	for key, body := range r.keys {
		r.finishKey(rt, key, body)
	}
	for n := 0; n < 2 || staged(r.Fixture) != ""; n++ {
		require.Less(rt, n, 20, "a job does not end: %s", staged(r.Fixture))
		s := r.instances[n%2]
		require.NoError(rt, readList(s))
		r.work(s)
	}
	r.check(rt, totals)
}

func (r *changesRound) finishKey(rt *rapid.T, key idempotency.Key, body string) {
	var rejected *httpjson.Rejection
	for n := 0; ; n++ {
		require.Less(rt, n, 50, "the key does not end")
		r.Exec("UPDATE refunds SET provider_sent_at = provider_sent_at - interval '11 minutes' WHERE idempotency_key = $1", key)
		_, err := r.Refund(context.Background(), RefundRequest(r.T, r.Account, OrderID(r.Account, r.Key), key, body))
		_, provider := errors.AsType[*httpjson.ProviderError](err)
		if !provider && !errors.Is(err, idempotency.ErrInProgress) {
			require.True(rt, err == nil || errors.As(err, &rejected), "%v", err)
			return
		}
	}
}

// recorded is what we have recorded and reported about a refund or a dispute.
type recorded struct {
	ProviderID string
	Status     string
	Response   int
	History    []string // its statuses in audit records
	Events     int      // for the shop
	Told       int      // findings for an operator
}

func (r *changesRound) check(rt *rapid.T, totals map[string]int) {
	now := map[string]string{} // the provider's statuses
	for _, made := range r.made() {
		now[made.ID] = made.Status
	}
	for _, made := range r.read(rt, `
SELECT coalesce(r.provider_refund_id, ''),
       r.status,
       coalesce(k.response_code, 0),
       ARRAY(SELECT substr(action, 8) FROM audit_records WHERE resource_id = r.id::text AND action ~ '^refund.(pending|succeeded|failed)' ORDER BY 1),
       (SELECT count(*) FROM staged_jobs WHERE kind = 'event' AND args->>'refund_id' = r.id::text),
       (SELECT count(*) FROM staged_jobs WHERE last_error = 'refund_failed_late' AND args->>'refund_id' = r.id::text)
  FROM refunds AS r
  LEFT JOIN idempotency_keys AS k
 USING (account_id, idempotency_key)
 WHERE r.order_id = $1`) {
		if made.ProviderID != "" {
			require.Equal(rt, now[made.ProviderID], made.Status, "%+v", made)
		}
		delete(now, made.ProviderID)
		r.requireOnce(rt, made, totals, "refunds")
		// Its client, or a shop, has heard that it succeeded.
		success := made.Response == 201 || made.Response == 0 && len(made.History) > 1
		told := 0
		if made.Status == "failed" && success {
			told = 1
		}
		require.Equal(rt, told, made.Told, "%+v", made)
		totals["refunds that failed late"] += told
	}
	require.Empty(rt, now, "refunds that are not recorded")
	for _, d := range r.disputes() {
		now[d.ID] = d.Status
	}
	for _, d := range r.read(rt, `
SELECT d->>'id',
       d->>'status',
       0,
       ARRAY(SELECT data->'dispute'->>'status' FROM audit_records WHERE action = 'order.dispute_updated' AND data->'dispute'->>'id' = d->>'id' ORDER BY 1),
       (SELECT count(*) FROM staged_jobs WHERE kind = 'event' AND args->>'dispute_id' = d->>'id'),
       0
  FROM orders,
       jsonb_array_elements(disputes) AS d
 WHERE id = $1`) {
		require.Equal(rt, now[d.ProviderID], d.Status)
		delete(now, d.ProviderID)
		r.requireOnce(rt, d, totals, "disputes")
	}
	require.Empty(rt, now, "disputes that are not recorded")
	totals["rounds"]++
}

func (r *changesRound) read(rt *rapid.T, query string) []recorded {
	rows, _ := r.Pool.Query(context.Background(), query, OrderID(r.Account, r.Key))
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[recorded])
	require.NoError(rt, err)
	return list
}

// requireOnce requires that each status was recorded once, and reported with its own event.
func (r *changesRound) requireOnce(rt *rapid.T, what recorded, totals map[string]int, name string) {
	require.Equal(rt, slices.Compact(slices.Clone(what.History)), what.History, "%+v", what)
	require.Contains(rt, what.History, what.Status, "%+v", what)
	require.Equal(rt, len(what.History), what.Events, "%+v", what)
	totals[name]++
	totals["changes of "+name] += len(what.History)
}
