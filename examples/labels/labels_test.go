package labels_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/examples/labels"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/foreigntest"
	"example.com/orders-api/orders/orderstest"
)

// A run stops at each commit and call. No label is bought twice. If none is bought, no run may find out, so an operator
// ends the label.
func TestBuy_stopped(t *testing.T) {
	t.Parallel()
	commit := func(n int, fault idempotencytest.Fault) func(*fixture) {
		return func(f *fixture) { f.wire.Strike(n, fault) }
	}
	call := func(method string, answer answerer) func(*fixture) {
		return func(f *fixture) { f.carrier.set(method, answer) }
	}
	for name, test := range map[string]struct {
		stop   func(*fixture)
		unsent bool
	}{
		"before COMMIT 1":                  {stop: commit(1, idempotencytest.CutBefore)},
		"after COMMIT 1":                   {stop: commit(1, idempotencytest.CutAfter)},
		"before the lookup":                {stop: call(http.MethodGet, loseRequest)},
		"after the lookup":                 {stop: call(http.MethodGet, loseResponse)},
		"before COMMIT 2":                  {stop: commit(2, idempotencytest.CutBefore)},
		"after COMMIT 2":                   {stop: commit(2, idempotencytest.CutAfter), unsent: true},
		"before the carrier has sold it":   {stop: call(http.MethodPost, loseRequest), unsent: true},
		"after the carrier has sold it":    {stop: call(http.MethodPost, loseResponse)},
		"before COMMIT 3":                  {stop: commit(3, idempotencytest.CutBefore)},
		"after COMMIT 3, which was stored": {stop: commit(3, idempotencytest.CutAfter)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			test.stop(f)
			first := f.buy()
			if name != "after COMMIT 3, which was stored" {
				require.Equal(t, http.StatusServiceUnavailable, first.Code, first.Body)
			}
			if !test.unsent {
				f.requireBought()
				return
			}
			f.requireUnknown()
			_, err := f.resolve()
			require.Error(t, err, "the request may still be executed")
			f.passTime()
			closed := requireProblem(t, "label-refused", f.buy())
			require.Equal(t, "The seller closed the request, and no label was bought.", closed["detail"])
			require.Empty(t, f.carrier.sold())
			f.key = "the-key-of-another-label"
			f.requireBought()
		})
	}
}

// A request is executed late, or the carrier lists its label late. Runs wait, however much time passes, also those of an
// operator who has ended the label too early.
func TestBuy_late(t *testing.T) {
	t.Parallel()
	for name, resolved := range map[string]bool{"": false, ", ended by an operator": true} {
		test := func(name string, answer answerer, arrive func(*fixture)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				f.carrier.set(http.MethodPost, answer)
				f.carrier.hidden = true
				f.requireUnknown()
				if !resolved {
					f.passTime()
				} else if _, err := f.resolve(); err == nil {
					t.Error("the key is finished")
				}
				f.requireUnknown()
				arrive(f)
				f.requireBought()
			})
		}
		var execute func(http.ResponseWriter)
		test("listed late"+name, loseResponse, func(f *fixture) { f.carrier.hidden = false })
		test("executed late"+name, func(_ http.ResponseWriter, later func(http.ResponseWriter)) {
			execute = later
			panic(http.ErrAbortHandler)
		}, func(f *fixture) {
			f.carrier.hidden = false
			execute(httptest.NewRecorder())
		})
	}
}

// A run stalls during its call for longer than its lease, and another one takes over.
func TestBuy_twoRuns(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			reached, held := make(chan struct{}), make(chan struct{})
			release := sync.OnceFunc(func() { close(held) })
			defer release()
			f.carrier.set(method, func(out http.ResponseWriter, execute func(http.ResponseWriter)) {
				close(reached)
				<-held
				execute(out)
			})
			first := make(chan *httptest.ResponseRecorder, 1)
			go func() { first <- f.buy() }()
			select {
			case <-reached:
			case got := <-first:
				require.Fail(t, "the run has made no call", got.Body)
			}
			requireProblem(t, "idempotency-key-in-progress", f.buy())
			f.passTime()
			if method == http.MethodGet {
				f.requireBought()
			} else {
				f.requireUnknown()
			}
			release()
			requireProblem(t, "idempotency-key-in-progress", <-first)
			f.requireBought()
		})
	}
}

// A failover loses the rows of the label and of its key, during a run or later. Its retry looks like a first run.
func TestBuy_lostRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.carrier.set(http.MethodPost, loseResponse)
	f.requireUnknown()
	for range 2 {
		f.exec("DELETE FROM labels")
		if again := f.buy(); again.Header().Get("Idempotent-Replayed") == "" {
			requireProblem(t, "internal-error", again) // 404 would mean that the account has no such order
		}
		f.exec("DELETE FROM idempotency_keys WHERE id = $1", idempotency.KeyID(f.Account, f.key))
		f.requireBought()
	}
}

func TestBuy_refused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.carrier.set(http.MethodPost, func(out http.ResponseWriter, _ func(http.ResponseWriter)) {
		write(out, http.StatusTooManyRequests, f.labelID().String(), "busy")
	})
	f.requireUnknown()
	f.carrier.refuses = true
	refused := f.buy()
	require.Equal(t, `{"type":"/problems/label-refused","title":"No label was bought","status":422,`+
		`"detail":"The carrier does not take this parcel.","retry":"new-key","outcome":"final"}`, refused.Body.String())
	f.carrier.refuses = false
	require.Equal(t, refused.Body, f.buy().Body)
	require.Equal(t, "refused", f.label().Status)
	f.key = "the-key-of-another-label"
	f.requireBought()
}

// No answer of a gateway decides anything, whatever its status, because the carrier names the label in its body. And no
// other server can answer for the carrier (R31, one call, one answer).
func TestBuy_gateway(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	t.Cleanup(elsewhere.Close)
	const number = `","tracking_number":"` + trackingNumber + `"}`
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			for _, status := range []int{200, 201, 202, 204, 302, 307, 404, 409, 422, 429, 500} {
				for body, contentType := range map[string]string{
					"<h1>Maintenance</h1>": "text/html",
					"":                     "application/json",
					"null":                 "application/json",
					`{}`:                   "application/json",
					`{"reference":"` + uuid.NewString() + `","status":"bought` + number:   "application/json",
					`{"reference":"` + uuid.NewString() + `","status":"none"}`:            "application/json",
					`{"reference":"` + uuid.NewString() + `","status":"refused"}`:         "application/json",
					`{"reference":"ID","status":"bough`:                                   "application/json",
					`{"reference":"ID","status":"bought"}`:                                "application/json",
					`{"reference":"ID","status":"bought","tracking_number":"SX\u000017"}`: "application/json",
					`{"reference":"ID","status":"in transit` + number:                     "application/json",
					`{"reference":"ID","status":"bought` + number:                         "text/html",
				} {
					f.carrier.set(method, func(out http.ResponseWriter, _ func(http.ResponseWriter)) {
						out.Header().Set("Content-Type", contentType)
						out.Header().Set("Location", elsewhere.URL)
						out.WriteHeader(status)
						_, _ = io.WriteString(out, strings.ReplaceAll(body, "ID", f.labelID().String()))
					})
					if method == http.MethodPost {
						f.key = idempotency.Key(fmt.Sprintf("the-key-of-label-%s", uuid.New()))
					}
					f.requireUnknown()
				}
			}
			require.Empty(t, f.carrier.sold())
			f.key = "the-key-of-another-label"
			f.requireBought()
		})
	}
}

// A call ends within its limit, whatever the server sends.
func TestBuy_foreignServer(t *testing.T) {
	t.Parallel()
	for name, respond := range foreigntest.Answers(t, http.StatusCreated) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(respond)
			t.Cleanup(server.Close)
			carrier := &labels.Carrier{URL: server.URL, Transport: server.Client().Transport, Timeout: 200 * time.Millisecond}
			start := time.Now()
			_, err := carrier.Buy(t.Context(), uuid.New(), labels.Parcel{Address: "Ann Lee", Grams: 1})
			require.Error(t, err)
			require.Less(t, time.Since(start), foreigntest.Held)
		})
	}
}

// A request that is rejected uses no key.
func TestBuy_rejected(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for body, pointer := range map[string]string{
		`{"grams":1}`: "/address",
		`{"address":"` + strings.Repeat("a", 501) + `","grams":1}`: "/address",
		`{"address":"Ann Lee"}`:                          "/grams",
		`{"address":"Ann Lee","grams":0}`:                "/grams",
		`{"address":"Ann Lee","grams":30001}`:            "/grams",
		`{"address":"Ann Lee","grams":1,"express":true}`: "/express",
	} {
		problem := requireProblem(t, "validation-failed", f.send(f.key, f.order+"/labels", body))
		require.Equal(t, pointer, problem["errors"].([]any)[0].(map[string]any)["pointer"], body)
	}
	requireProblem(t, "not-found", f.send(f.key, "/v1/orders/"+uuid.NewString()+"/labels", request))
	f.createOrder(orderstest.DeclinedCard)
	f.createOrder(orderstest.ChallengeCard)
	f.createOrder(orderstest.PendingRefund)
	refunded := orderstest.OrderID(f.Account, "order-with-"+orderstest.PendingRefund)
	f.exec("UPDATE orders SET status = 'refunded', amount_refunded = amount WHERE id = $1", refunded)
	for _, card := range []string{orderstest.DeclinedCard, orderstest.ChallengeCard, orderstest.PendingRefund} {
		order := orderstest.OrderID(f.Account, idempotency.Key("order-with-"+card)).String()
		result, err := f.Engine.Do(t.Context(), idempotency.Request{ // the API would need the page of the problem
			AccountID: f.Account, Key: f.key, Method: http.MethodPost, Path: "/v1/orders/" + order + "/labels", Params: []byte(request),
		}, f.Engine.Operation("buy_label"))
		require.Equal(t, "422 order-not-shippable, and the key is unused", orderstest.Outcome(result, err), card)
	}
	require.Equal(t, http.StatusNotFound, f.send("", "/v1/idempotency-keys/"+string(f.key), "").Code, "the key was not used")
	f.requireBought()
	requireProblem(t, "idempotency-key-reused", f.send(f.key, f.order+"/labels", `{"address":"Ann Lee","grams":1}`))
	require.Equal(t, http.StatusNotFound, f.send("", "/v1/orders/"+refunded.String()+"/labels/"+f.labelID().String(), "").Code)
}

// An erasure of the order removes the address, and the key never executes again (R17, used for ever).
func TestBuy_erased(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.carrier.set(http.MethodPost, loseResponse)
	f.requireUnknown()
	orderID := uuid.MustParse(strings.TrimPrefix(f.order, "/v1/orders/"))
	f.exec("DELETE FROM staged_jobs")
	require.ErrorContains(t, f.Orders.Erase(t.Context(), f.Account, orderID, "ada"), "unfinished")
	f.requireBought()
	require.NoError(t, f.Orders.Erase(t.Context(), f.Account, orderID, "ada"))
	var traces int
	require.NoError(t, f.Pool.QueryRow(t.Context(), `
SELECT count(*)
  FROM (SELECT row_to_json(k)::text || convert_from(coalesce(request_params, ''), 'UTF8') FROM idempotency_keys AS k
         UNION ALL SELECT row_to_json(l)::text FROM labels AS l
         UNION ALL SELECT row_to_json(a)::text FROM audit_records AS a) AS written (line)
 WHERE line LIKE '%Main Street%'`).Scan(&traces))
	require.Zero(t, traces)
	for _, body := range []string{request, `{}`} {
		problem := requireProblem(t, "idempotency-key-expired", f.send(f.key, f.order+"/labels", body))
		require.Equal(t, orderID.String(), problem["order_id"])
	}
	require.Equal(t, "bought", f.label().Status)
	require.Len(t, f.carrier.sold(), 1)
}
