package model_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/lab/engine/proxytest"
	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// After a day of the model, no create is sent any more (half an hour), but the fake still has its
// key (24 hours). After two, the charge window is over.
const (
	day           = 23*time.Hour + 20*time.Minute
	chargeWindow  = 36 * time.Hour
	leaseDuration = time.Minute
)

// replayer makes the program follow a trace.
type replayer struct {
	*orderstest.Shop

	t         testing.TB
	ahead     atomic.Int64 // of the clock, in nanoseconds
	proxy     *proxytest.Proxy
	provider  *provider
	request   idempotency.Request
	runs      [2]*run
	cancels   int
	standby   [][]string // rows, by table
	movedBack bool       // by lost-rows
}

func replay(t testing.TB, trace trace) {
	t.Helper()
	r := newReplayer(t, trace)
	defer func() {
		for _, run := range r.runs {
			if run != nil {
				run.crash(t)
			}
		}
	}()
	before := state{point: "unused", answer: "none", intents: [3]string{"absent", "absent", "absent"}}
	for i, action := range trace.actions {
		wrong := r.do(before, action)
		if got := r.state(); wrong == "" && got != action.after {
			wrong = "the program has:\n" + got.String()
		}
		if wrong != "" {
			history := ""
			for _, earlier := range trace.actions[:i+1] {
				history += earlier.String() + "\n"
			}
			require.Fail(t, "the program does not follow the model", "trace %s\n%s%s", trace.name, history, wrong)
		}
		before = action.after
	}
}

func newReplayer(t testing.TB, trace trace) *replayer {
	t.Helper()
	r := &replayer{t: t, proxy: proxytest.New(t), provider: newProvider(cardsOf(trace))}
	pool := idempotencytest.NewPool(t, r.proxy.Configure, func(config *pgxpool.Config) {
		config.MaxConns = 3 // one for each run, and one for the test
		config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
		config.ConnConfig.Tracer = gates{}
		config.ConnConfig.RuntimeParams["search_path"] = "clock, pg_catalog, public"
	})
	_, err := pool.Exec(t.Context(), clockSchema)
	require.NoError(t, err)
	r.Shop = orderstest.New(t, orderstest.Options{
		Pool:         pool,
		ChargeWindow: chargeWindow,
		Stripe:       stripetest.Options{SearchDelay: -1},
		Payments:     payments.Config{Transport: r.provider},
		Engine: idempotency.Config{
			LeaseDuration: leaseDuration,
			Clock:         func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) },
		},
	})
	params, err := idempotency.Canonicalize([]byte(
		`{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa","items":[{"sku":"TEA","quantity":1,"unit_amount":1250}]}`))
	require.NoError(t, err)
	r.request = idempotency.Request{
		AccountID: r.Account, Key: "a-key-of-the-model", Method: http.MethodPost, Path: "/v1/orders", Params: params,
	}
	return r
}

// cardsOf returns the card of each intent, which decides the outcome of its confirm.
func cardsOf(trace trace) []string {
	cards := []string{visa, visa, visa}
	before := [3]string{"absent", "absent", "absent"}
	for _, action := range trace.actions {
		for i, status := range action.after.intents {
			if before[i] != "unconfirmed" {
				continue
			}
			switch status {
			case "action":
				cards[i] = challengeCard
			case "declined":
				cards[i] = declinedCard
			}
		}
		before = action.after.intents
	}
	return cards
}

// clockSchema is before pg_catalog in the search path, so the program's statements use it.
const clockSchema = `
CREATE SCHEMA clock;
CREATE TABLE clock.ahead (by interval);
INSERT INTO clock.ahead VALUES ('0');
CREATE FUNCTION clock.now() RETURNS timestamptz STABLE LANGUAGE sql AS 'SELECT pg_catalog.now() + by FROM clock.ahead';
CREATE FUNCTION clock.statement_timestamp() RETURNS timestamptz STABLE LANGUAGE sql AS
    'SELECT pg_catalog.statement_timestamp() + by FROM clock.ahead'`

// advance moves all clocks forward.
func (r *replayer) advance(d time.Duration) {
	r.t.Helper()
	r.ahead.Add(int64(d))
	r.Stripe.Advance(d)
	r.exec("UPDATE clock.ahead SET by = $1", time.Duration(r.ahead.Load()))
}

// needs are the gates at which an action finds its run.
var needs = map[string][]string{
	"search":                {atSearch},
	"create":                {atCreate},
	"create-lost":           {atCreate},
	"create-delayed":        {atCreate},
	"read":                  {atRead},
	"confirm":               {atConfirm},
	"confirm-lost":          {atConfirm},
	"confirm-delayed":       {atConfirm},
	"cancel":                {atCancel},
	"cancel-lost":           {atCancel},
	"cancel-delayed":        {atCancel},
	"commit":                {atCommit},
	"commit-unacknowledged": {atCommit},
	"commit-delayed":        {atCommit},
	"pause":                 {atCommit, atRelease},
	"lease-lost":            {atCommit},
	"resolve":               {atRelease},
}

// do makes the program do an action, and returns what is wrong.
func (r *replayer) do(before state, a action) string {
	r.t.Helper()
	if a.run < 0 {
		r.environment(before, a)
		return ""
	}
	run := r.runs[a.run]
	if gates := needs[a.name]; gates != nil && (run == nil || !slices.Contains(gates, run.at)) {
		at := ended
		if run != nil {
			at = run.at
		}
		return "the run is at: " + at
	}
	switch a.name {
	case "claim", "takeover", "replay":
		run = startRun(r.t.Context(), r.Create, r.request)
		r.runs[a.run] = run
		run.await(r.t)
		if a.name == "claim" && run.at == atCommit {
			run.open(r.t)
		}
	case "pause":
		return ""
	case "crash":
		run.crash(r.t)
		return ""
	default:
		run.verdict = answered
		run.hidden = nil
		for _, n := range a.hidden {
			run.hidden = append(run.hidden, r.provider.intents[n-1])
		}
		switch {
		case strings.HasPrefix(a.name, "commit-"):
			fault := proxytest.CutAfter
			if a.name == "commit-delayed" {
				fault = proxytest.HoldBatch
			}
			run.unknown.Store(true)
			r.proxy.Strike(1, fault)
		case strings.HasSuffix(a.name, "-lost") && a.name != "lease-lost":
			run.verdict = lost
		case strings.HasSuffix(a.name, "-delayed"):
			run.verdict = delayed
		}
		run.open(r.t)
	}
	if run.at == ended {
		return r.wrongEnd(run, a)
	}
	return ""
}

// wrongEnd compares the result of a run with the model's.
func (r *replayer) wrongEnd(run *run, a action) string {
	// A run without an outcome ends at a call, or if its time is over, already at the read before the call.
	_, unknown := errors.AsType[*httpjson.ProviderError](run.err)
	unknown = unknown || errors.Is(run.err, context.DeadlineExceeded)
	right := false
	switch {
	case a.name == "lease-lost":
		// A run that continues at a row that a failover moved back notices it at its next call.
		right = errors.Is(run.err, idempotency.ErrLeaseLost) || r.movedBack && unknown
	case a.name == "resolve" && errors.Is(run.err, postgres.ErrUnavailable):
		right = true
	case a.after.answer == "paid":
		right = run.err == nil && run.result.Response.Status == http.StatusCreated
	case a.after.answer == "failed":
		right = run.err == nil && run.result.Response.Status >= http.StatusBadRequest
	case errors.Is(run.err, idempotency.ErrActionRequired) && (a.after.waiting || r.movedBack): // the run remembers its action
		right = true
	default:
		right = unknown
	}
	if !right {
		return fmt.Sprintf("the run ended with status %d and error %v", run.result.Response.Status, run.err)
	}
	return ""
}

func (r *replayer) environment(before state, a action) {
	r.t.Helper()
	switch a.name {
	case "lease-ends":
		r.advance(leaseDuration + time.Second)
	case "day":
		r.advance(day)
	case "create-forgotten":
		r.provider.forget(atCreate)
	case "confirm-forgotten":
		r.provider.forget(atConfirm)
	case "late-create", "late-confirm", "late-cancel":
		require.NoError(r.t, r.provider.arrive(strings.TrimPrefix(a.name, "late-")))
	case "late-commit":
		r.proxy.Release()
		require.Eventually(r.t, func() bool { return r.proxy.Held() == 0 }, timeout, time.Millisecond)
	case "customer", "second-card":
		for i, status := range a.after.intents {
			if status == before.intents[i] {
				continue
			}
			if a.name == "second-card" {
				require.NoError(r.t, r.Stripe.ConfirmAsCustomer(r.provider.intents[i], mastercard))
			} else {
				require.NoError(r.t, r.Stripe.Authenticate(r.provider.intents[i], status == "succeeded"))
			}
		}
	case "cancel-requested": // its process dies after its first transaction
		run := startRun(r.t.Context(), r.Cancel, r.newCancel())
		run.last.Store(true)
		run.await(r.t)
		require.Equal(r.t, atCommit, run.at)
		run.open(r.t)
		require.Equal(r.t, ended, run.at)
	case "cancel-answered":
		result, err := r.Cancel(r.t.Context(), r.newCancel())
		require.NoError(r.t, err)
		require.Equal(r.t, http.StatusOK, result.Response.Status)
	case "standby-stops":
		r.standby = r.rows()
	case "lost-rows":
		r.restore(r.standby)
		r.movedBack = true
	default:
		require.Fail(r.t, "unknown action", a.name)
	}
}

// newCancel returns a cancel with a key of its own.
func (r *replayer) newCancel() idempotency.Request {
	r.cancels++
	request := r.request
	request.Key = idempotency.Key(fmt.Sprintf("cancel-%d-of-the-model", r.cancels))
	request.Path += "/" + idempotency.DeriveID("order", r.Account, r.request.Key).String() + "/cancel"
	request.Params = []byte(`{}`)
	return request
}

// tables are those that an order's transactions change.
var tables = []string{"idempotency_keys", "orders", "audit_records", "staged_jobs"}

func (r *replayer) rows() (rows [][]string) {
	r.t.Helper()
	for _, table := range tables {
		found, _ := r.Pool.Query(r.t.Context(), "SELECT t::text FROM "+table+" AS t")
		texts, err := pgx.CollectRows(found, pgx.RowTo[string])
		require.NoError(r.t, err)
		rows = append(rows, texts)
	}
	return rows
}

func (r *replayer) restore(rows [][]string) {
	r.t.Helper()
	for _, table := range slices.Backward(tables) {
		r.exec("DELETE FROM " + table)
	}
	for i, table := range tables {
		for _, row := range rows[i] {
			r.exec("INSERT INTO "+table+" SELECT ($1::text::"+table+").*", row)
		}
	}
}

func (r *replayer) exec(query string, arguments ...any) {
	r.t.Helper()
	_, err := r.Pool.Exec(r.t.Context(), query, arguments...)
	require.NoError(r.t, err)
}

var statuses = map[payments.Status]string{
	payments.StatusRequiresConfirmation:  "unconfirmed",
	payments.StatusRequiresAction:        "action",
	payments.StatusSucceeded:             "succeeded",
	payments.StatusRequiresPaymentMethod: "declined",
	payments.StatusCanceled:              "canceled",
}

var answerOf = map[int]string{0: "none", http.StatusCreated: "paid"} // others: failed

// state reads the program's state.
func (r *replayer) state() state {
	r.t.Helper()
	got := state{point: "unused", answer: "none", charges: len(r.Stripe.Charges()), intents: [3]string{"absent", "absent", "absent"}}
	for i, id := range r.provider.intents {
		intent, err := r.Payments.Get(r.t.Context(), id)
		require.NoError(r.t, err)
		got.intents[i] = statuses[intent.Status]
	}
	var intent, status string
	var code int
	err := r.Pool.QueryRow(r.t.Context(), `
SELECT k.recovery_point,
       coalesce(k.locked_at > now() - $2::interval, false),
       coalesce(k.response_code, 0),
       coalesce(o.payment_intent_id, ''),
       o.status
  FROM idempotency_keys AS k
  JOIN orders AS o USING (account_id, idempotency_key)
 WHERE k.id = $1`, idempotency.KeyID(r.Account, r.request.Key), leaseDuration).Scan(&got.point, &got.locked, &code, &intent, &status)
	if errors.Is(err, pgx.ErrNoRows) {
		return got
	}
	require.NoError(r.t, err)
	got.intent = slices.Index(r.provider.intents, intent) + 1
	got.waiting = status == "requires_action"
	if got.answer = answerOf[code]; got.answer == "" {
		got.answer = "failed"
	}
	return got
}
