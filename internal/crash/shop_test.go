package crash_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/events"
)

// change is what has changed since the final response of the case's request.
type change string

const (
	nothing             change = "nothing"
	refundedAtDashboard change = "refunded at the dashboard"
	refundFailed        change = "refund failed"
)

// sendEvent is the boundary of an event to the shop.
const sendEvent = "POST /events"

// shop is the endpoint. It accepts each event, and knows repeated ones by their ids.
type shop struct {
	url       string
	account   string       // whose events count
	exchanges *interceptor // of the victim

	mu    sync.Mutex
	types map[string]string // of the accepted events, by id
}

func (s *shop) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var event struct {
		ID, Type  string
		AccountID string `json:"account_id"`
	}
	err := json.NewDecoder(r.Body).Decode(&event)
	if err == nil && event.AccountID != s.account {
		return
	}
	exchange := s.exchanges.begin(provider, sendEvent)
	if err != nil || !exchange.proceed(before) {
		panic(http.ErrAbortHandler)
	}
	s.mu.Lock()
	s.types[event.ID] = event.Type
	s.mu.Unlock()
	if !exchange.proceed(after) {
		panic(http.ErrAbortHandler)
	}
}

func (s *shop) received() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Values(s.types))
}

// openShop gives the service an endpoint.
func (h *harness) openShop() {
	h.shop = &shop{account: h.account.id.String(), exchanges: &interceptor{}, types: map[string]string{}}
	server := httptest.NewServer(h.shop)
	h.t.Cleanup(server.Close)
	h.shop.url = server.URL
}

// expireJobs makes the jobs due that no session has locked, except receipts, which the invariants count.
func (h *harness) expireJobs() {
	h.t.Helper()
	_, err := h.pool.Exec(h.t.Context(), `
UPDATE staged_jobs
   SET run_at = now() + CASE kind WHEN 'receipt' THEN interval '20 minutes' ELSE '0' END
 WHERE id IN (
           SELECT id
             FROM staged_jobs
              FOR UPDATE SKIP LOCKED
       )`)
	require.NoError(h.t, err)
}

// change finishes the case's request, and then changes what it is about.
func (h *harness) change(f flow) {
	h.t.Helper()
	got := h.post(h.bystander().url(), h.account, h.params)
	require.Equal(h.t, http.StatusCreated, got.status, "%v", got)
	if f.actor == worker && f.changed != nothing {
		h.command("worker", "--once") // sends the earlier events, because several at once have no order
	}
	h.expireLeases()
	switch f.changed {
	case refundedAtDashboard:
		_, err := h.stripe.RefundAtDashboard(h.intents()[0].ID, 700, "")
		require.NoError(h.t, err)
	case refundFailed:
		require.NoError(h.t, h.stripe.Settle(h.stripe.Refunds()[0].ID, false))
	}
}

// reconcile must fail as long as the refund of the dashboard is not recorded, and leave a job for the worker.
func (h *harness) reconcile(by actor) (wrong []string) {
	h.t.Helper()
	got := h.command(commands[by]...)
	want := h.query("SELECT 'provider_change' WHERE NOT EXISTS (SELECT FROM refunds)")
	left := h.query("SELECT kind FROM staged_jobs WHERE kind = 'provider_change' AND NOT EXISTS (SELECT FROM refunds)")
	if !slices.Equal(left, want) || got.exitCode != len(want) || len(h.findings()) > 0 {
		wrong = append(wrong, fmt.Sprintf("the jobs are %v instead of %v, the findings %v: %v", left, want, h.findings(), got))
	}
	return wrong
}

func (h *harness) findings() []string {
	h.t.Helper()
	return h.query("SELECT last_error FROM staged_jobs WHERE kind = 'discrepancy' AND acknowledged_at IS NULL ORDER BY 1")
}

// verifyChanges lets the commands run once more. Then the change is recorded, reported and sent once.
func (h *harness) verifyChanges(f flow, url string) (wrong []string) {
	h.t.Helper()
	actors := []actor{worker}
	if f.actor == reconcile || f.actor == fix {
		actors = []actor{reconcile, fix, worker}
	}
	h.expireLeases()
	for _, by := range actors {
		wrong = append(wrong, h.runBy(by, url)...)
	}
	sent, found := []string{events.OrderPaid}, []string(nil)
	switch f.changed {
	case refundedAtDashboard:
		sent = append(sent, events.RefundCreated)
	case refundFailed:
		sent = append(sent, events.RefundCreated, events.RefundUpdated)
		found = []string{"refund_failed_late"}
	}
	if got := h.shop.received(); !slices.Equal(got, sent) {
		wrong = append(wrong, fmt.Sprintf("the shop received %v instead of %v (R28)", got, sent))
	}
	if got := h.query("SELECT id::text FROM audit_records WHERE action = 'event.done' AND account_id = $1", h.account.id); len(got) != len(sent) {
		wrong = append(wrong, fmt.Sprintf("%d events have the audit record of their success instead of %d", len(got), len(sent)))
	}
	if got := h.findings(); !slices.Equal(got, found) {
		wrong = append(wrong, fmt.Sprintf("the findings are %v instead of %v", got, found))
	}
	for _, job := range h.query("SELECT kind || ' ' || coalesce(last_error, '') FROM staged_jobs WHERE kind NOT IN ('receipt', 'discrepancy')") {
		wrong = append(wrong, "a job is left: "+job)
	}
	return wrong
}
