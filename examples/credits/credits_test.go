package credits_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/examples/credits"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/foreigntest"
)

func TestGrant_responseLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wallets.lostResponses = 1
	problem := requireProblem(t, "payment-outcome-unknown", f.grant())
	require.NotRegexp(t, "(?i)card|charge|payment", problem["title"].(string)+problem["detail"].(string), "a credit charges nothing")
	require.Equal(t, "pending", f.credit().Status, "nothing is stored")

	first := f.grant()
	require.Equal(t, http.StatusCreated, first.Code, first.Body)
	require.Empty(t, first.Header().Get("Idempotent-Replayed"))
	require.Equal(t, "granted", f.credit().Status)
	f.wallets.expectCredits(t, 1)

	again := f.grant()
	require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
	require.Equal(t, first.Body, again.Body)
	require.Equal(t, 2, f.wallets.calls, "a replay makes no call")
	status := f.send("", "/v1/idempotency-keys/"+key, "")
	require.Contains(t, status.Body.String(), `"resource":{"id":"`+f.credit().ID.String()+`","href":"`+first.Header().Get("Location")+`"}`)
}

// The client does not retry, so the completer finishes the credit.
func TestGrant_crashBetweenCallAndRecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wallets.lostResponses = 1
	require.Equal(t, http.StatusServiceUnavailable, f.grant().Code)
	id := idempotency.KeyID(f.Account, key)
	// A process that dies does not release its lease. An hour later, it is over.
	_, err := f.Pool.Exec(t.Context(), `
UPDATE idempotency_keys
   SET locked_at  = updated_at - interval '1 hour',
       updated_at = updated_at - interval '1 hour',
       last_error = NULL
 WHERE account_id = $1
   AND id = $2`, f.Account, id)
	require.NoError(t, err)
	completer := idempotency.NewCompleter(f.Engine, idempotency.CompleterConfig{
		Grace: 5 * time.Minute, ActionTimeout: 23 * time.Hour, Batch: 40, Concurrency: 1,
	})
	pass, err := completer.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, pass)
	require.Equal(t, "granted", f.credit().Status)
	f.wallets.expectCredits(t, 1)
	require.Equal(t, "true", f.grant().Header().Get("Idempotent-Replayed"))
}

// An operator ends a credit that no retry finishes. The wallet service decides whether it was granted.
func TestGrant_resolve(t *testing.T) {
	t.Parallel()
	const closed = "The credit was closed by the seller before it was granted."
	for name, test := range map[string]struct {
		lost     int // responses
		down     bool
		statuses []int // of the attempts, 0 without a response
		detail   string
	}{
		"the service is down":              {down: true, statuses: []int{422}, detail: closed},
		"granted, response lost":           {lost: 1, statuses: []int{201}},
		"cancelled, response lost":         {down: true, lost: 1, statuses: []int{0, 422}, detail: closed},
		"cancelled by a client's retry":    {down: true, lost: 1, statuses: []int{0}, detail: closed},
		"granted, both responses are lost": {lost: 2, statuses: []int{0, 201}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.wallets.lostResponses, f.wallets.down = test.lost, test.down
			requireProblem(t, "payment-outcome-unknown", f.grant())
			for n, status := range test.statuses {
				result, err := f.resolve()
				require.Equal(t, status == 0, err != nil, "%v", err)
				require.Equal(t, status, result.Response.Status)
				require.Equal(t, n+1, f.auditRecords())
			}
			f.wallets.down = false
			again := f.grant()
			last := test.statuses[len(test.statuses)-1]
			require.Equal(t, last != 0, again.Header().Get("Idempotent-Replayed") == "true")
			granted := 1
			if test.detail != "" {
				granted = 0
				require.Equal(t, test.detail, requireProblem(t, "credit-refused", again)["detail"])
				outcome, err := f.service.Wallets.Put(t.Context(), f.credit()) // as a call that was in flight
				require.NoError(t, err)
				require.Equal(t, credits.Cancelled, outcome)
			}
			f.wallets.expectCredits(t, granted)
			require.Equal(t, granted == 1, f.credit().Status == "granted")
		})
	}
}

// A put gets no response, and the next one is refused. The service may still execute the first one, at any
// time (R23, cancel first).
func TestGrant_refusedBesideOneInFlight(t *testing.T) {
	t.Parallel()
	const documented = `{"type":"/problems/credit-refused","title":"The wallet service refused the credit","status":422,` +
		`"detail":"There is no such wallet.","retry":"new-key","outcome":"final"}`
	for name, test := range map[string]struct {
		beforeCancel bool // the first put is executed before the cancel; otherwise at the end
		lost         int  // responses to the cancel
		granted      int
	}{
		"executed before the cancel":                 {beforeCancel: true, granted: 1},
		"executed before the cancel, response lost":  {beforeCancel: true, lost: 1, granted: 1},
		"executed after the response":                {},
		"executed after the cancel with no response": {lost: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.wallets.slow, f.wallets.missing = 1, true
			requireProblem(t, "payment-outcome-unknown", f.grant())
			f.wallets.onCancel = func() {
				f.wallets.lostResponses, test.lost = test.lost, 0
				if test.beforeCancel {
					f.wallets.execute()
				}
			}
			if test.lost > 0 {
				requireProblem(t, "payment-outcome-unknown", f.grant())
				require.Equal(t, "pending", f.credit().Status)
			}
			final := f.grant()
			f.wallets.execute()
			f.wallets.expectCredits(t, test.granted)
			again := f.grant()
			require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
			require.Equal(t, final.Body, again.Body)
			if test.granted == 1 {
				require.Equal(t, http.StatusCreated, final.Code, final.Body)
				return
			}
			require.Equal(t, documented, final.Body.String())
			require.Equal(t, "refused", f.credit().Status)
		})
	}
}

// What a gateway answers is not stored, whatever its status: the wallet service names the credit in its body.
// And no other server can answer a call to the wallet service (R31, one call, one answer).
func TestGrant_gateway(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	requireUnknown := func(name string, gateway http.Handler) {
		f.wallets.gateway = gateway
		requireProblem(t, "payment-outcome-unknown", f.grant())
		_, err := f.resolve()
		require.Error(t, err, name)
		require.Equal(t, "pending", f.credit().Status, name)
		f.removeMark()
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	t.Cleanup(elsewhere.Close)
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect} {
		requireUnknown("redirected", http.RedirectHandler(elsewhere.URL, status))
	}
	for _, status := range []int{200, 201, 202, 204, 404, 409, 410, 422} {
		for body, contentType := range map[string]string{
			"<h1>Maintenance</h1>": "text/html",
			"":                     "application/json",
			"null":                 "application/json",
			`{}`:                   "application/json",
			`{"id":"` + uuid.NewString() + `","status":"granted"}`:   "application/json",
			`{"id":"` + uuid.NewString() + `","status":"cancelled"}`: "application/json",
			`{"id":"ID","status":"gran`:                              "application/json",
			`{"id":"ID","status":"pending"}`:                         "application/json",
			`{"id":"ID","status":"granted"}`:                         "text/html",
		} {
			requireUnknown(fmt.Sprint(status, " ", body), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", contentType)
				w.WriteHeader(status)
				_, _ = io.WriteString(w, strings.ReplaceAll(body, "ID", path.Base(r.URL.Path)))
			}))
		}
	}
	f.wallets.gateway = nil
	require.Equal(t, http.StatusCreated, f.grant().Code)
	f.wallets.expectCredits(t, 1)
}

// A call ends within its limit, whatever the server sends.
func TestGrant_foreignServer(t *testing.T) {
	t.Parallel()
	for name, respond := range foreigntest.Answers(t, http.StatusCreated) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(respond)
			t.Cleanup(server.Close)
			wallets := &credits.Wallets{URL: server.URL, Transport: server.Client().Transport, Timeout: 200 * time.Millisecond}
			start := time.Now()
			_, err := wallets.Put(t.Context(), credits.Credit{ID: uuid.New(), Wallet: "ann", Amount: 1})
			require.Error(t, err)
			require.Less(t, time.Since(start), foreigntest.Held)
		})
	}
}

func TestGrant_invalid(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for body, pointer := range map[string]string{
		`{"amount":1}`: "/wallet",
		`{"wallet":"` + strings.Repeat("w", 65) + `","amount":1}`: "/wallet",
		`{"wallet":"ann"}`:                             "/amount",
		`{"wallet":"ann","amount":0}`:                  "/amount",
		`{"wallet":"ann","amount":100000000}`:          "/amount",
		`{"wallet":"ann","amount":1,"currency":"usd"}`: "/currency",
	} {
		problem := requireProblem(t, "validation-failed", f.send(key, "/v1/credits", body))
		require.Equal(t, pointer, problem["errors"].([]any)[0].(map[string]any)["pointer"], body)
	}
	requireProblem(t, "malformed-request", f.send(key, "/v1/credits", `[]`))
	require.Equal(t, http.StatusNotFound, f.send("", "/v1/idempotency-keys/"+key, "").Code, "the key was not used")
	require.Equal(t, http.StatusCreated, f.grant().Code)
	requireProblem(t, "idempotency-key-reused", f.send(key, "/v1/credits", `{"wallet":"ann","amount":9900}`))
}

// A reaped key never executes again, whichever operation used it (R17, used for ever).
func TestGrant_reapedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const orderKey = "the-key-of-an-order"
	const order = `{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa","items":[{"sku":"TEA","quantity":1,"unit_amount":500}]}`
	created := f.send(orderKey, "/v1/orders", order)
	require.Equal(t, http.StatusCreated, created.Code, created.Body)
	granted := f.grant()
	require.Equal(t, http.StatusCreated, granted.Code)
	require.Equal(t, 2, idempotencytest.Reap(t, f.Pool))

	for used, member := range map[string]string{key: "resource", orderKey: "order_id"} {
		for path, valid := range map[string]string{"/v1/credits": request, "/v1/orders": order} {
			for _, body := range []string{valid, `{"amount":-1}`} {
				problem := requireProblem(t, "idempotency-key-expired", f.send(used, path, body))
				require.Contains(t, problem, member, "%s at %s", used, path)
			}
			requireProblem(t, "malformed-request", f.send(used, path, `[]`))
		}
		require.Contains(t, f.send("", "/v1/idempotency-keys/"+used, "").Body.String(), `"state":"expired"`)
	}
	problem := requireProblem(t, "idempotency-key-expired", f.grant())
	require.Equal(t, map[string]any{"id": f.credit().ID.String(), "href": granted.Header().Get("Location")}, problem["resource"])
	require.NotContains(t, problem, "order_id")
	require.Equal(t, 1, f.wallets.calls)
	f.wallets.expectCredits(t, 1)
	require.Equal(t, http.StatusNotFound, f.send("", "/v1/credits/"+uuid.NewString(), "").Code)
}
