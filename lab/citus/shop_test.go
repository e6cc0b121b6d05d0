//go:build citus

package citus_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/client"
	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
)

// shop is a schema with its own service, worker and completer, and what its clients were told.
type shop struct {
	*labtest.Fixture
	schema string
	client *client.Client
	mail   *programtest.MailServer
	stop   func()
	next   atomic.Int64

	mu       sync.Mutex
	paid     map[string]client.Order // by id, as the responses state them
	refunds  map[string]string       // the order by the refund's id
	approved map[string]bool         // paid orders, by id
	refused  map[string]bool         // orders whose card was declined, by id
	events   map[string]client.Event // by id
	posts    map[string]int          // deliveries of an event, by order
}

// secret signs the events.
var secret = "whsec_" + strings.Repeat("A", 32)

func startShop(t *testing.T, c *cluster, schema string) *shop {
	t.Helper()
	s := &shop{
		schema: schema, mail: programtest.NewMailServer(t, ""),
		paid: map[string]client.Order{}, refunds: map[string]string{}, approved: map[string]bool{}, refused: map[string]bool{},
		events: map[string]client.Event{}, posts: map[string]int{},
	}
	receiver := httptest.NewServer(http.HandlerFunc(s.receive))
	t.Cleanup(receiver.Close)
	s.Fixture = c.fixture(schema, "EVENTS_URL="+receiver.URL, "EVENTS_SECRET="+secret)
	processes := []*programtest.Process{
		labtest.Start(t, s.With("SMTP_URL=smtp://"+s.mail.Address, "RECEIPTS_FROM=shop@example.com"), "worker"),
		labtest.Start(t, s.Environ, "completer", "--every", "2s"),
	}
	api := s.Serve(s.Environ, "--shutdown-delay", "0")
	s.stop = func() {
		for _, p := range append(processes, api.Process) {
			p.Stop()
		}
	}
	var err error
	s.client, err = client.New(client.Config{BaseURL: api.Base, APIKey: s.APIKey})
	require.NoError(t, err)
	t.Cleanup(s.client.Close)
	return s
}

// receive is the shop's endpoint for events.
func (s *shop) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	event, err := client.VerifyEvent([]string{secret}, r.Header, body, time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events[event.ID] = event
	s.posts[event.Data.OrderID]++
}

func keyOf(n int64) client.Key { return client.Key(fmt.Sprintf("a-purchase-%010d", n)) }

func tea(paymentMethod string) client.OrderParams {
	return client.OrderParams{
		Email: "ada@example.com", Currency: "usd", PaymentMethod: paymentMethod,
		Items: []client.Item{{SKU: "tea", Description: "Green tea", Quantity: 2, UnitAmount: 1250}},
	}
}

// buy makes the purchase n: paid, refunded in part, approved by the customer, or declined. It sends each paid
// request again, one of four at the same time, which must not do anything again.
func (s *shop) buy(ctx context.Context, n int64) error {
	methods := []string{"pm_card_visa", "pm_card_visa", "pm_card_authenticationRequired", "pm_card_chargeDeclined"}
	key, params := keyOf(n), tea(methods[n%4])
	var again client.Order
	var group errgroup.Group
	create := func() (err error) {
		again, err = s.client.CreateOrder(ctx, key, params)
		return err
	}
	if n%4 == 0 {
		group.Go(create)
	}
	order, err := s.client.CreateOrder(ctx, key, params)
	err = errors.Join(err, group.Wait())
	action, approval := errors.AsType[*client.ActionRequiredError](err)
	if approval {
		if err := s.Stripe.Authenticate(action.Action.PaymentIntentID, true); err != nil {
			return err
		}
		order, err = s.client.CreateOrder(ctx, key, params)
	}
	if problem, ok := errors.AsType[*client.Problem](err); ok && problem.Status == http.StatusPaymentRequired && n%4 == 3 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refused[problem.OrderID] = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("purchase %d: %w", n, err)
	}
	if n%4 != 0 {
		err = create()
	}
	if err != nil || again.ID != order.ID {
		return fmt.Errorf("purchase %d is %s, and repeated %s: %w", n, order.ID, again.ID, err)
	}
	var refund client.Refund
	if n%4 == 1 {
		if refund, err = s.client.CreateRefund(ctx, key+"-refund", order.ID, client.RefundParams{Amount: 500}); err != nil {
			return fmt.Errorf("refund of purchase %d: %w", n, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paid[order.ID] = order
	if approval {
		s.approved[order.ID] = true
	}
	if refund.ID != "" {
		s.refunds[refund.ID] = order.ID
	}
	return nil
}

// buyUntil makes purchases with concurrent clients until done is closed.
func (s *shop) buyUntil(ctx context.Context, done <-chan struct{}, clients int) error {
	group, ctx := errgroup.WithContext(ctx)
	for range clients {
		group.Go(func() error {
			for {
				select {
				case <-done:
					return nil
				default:
				}
				if err := s.buy(ctx, s.next.Add(1)-1); err != nil {
					return fmt.Errorf("%s: %w", s.schema, err)
				}
			}
		})
	}
	return group.Wait()
}

var receiptOf = regexp.MustCompile(`(?m)^Order: (\S+)`)

// requireConsistent stops the shop when its jobs are done, and compares what the clients were told with the
// provider's ledger, the database, the receipts and the events. Nothing is lost. Receipts and events may come
// twice (README), but only those that were sent since the first kill. It returns how many did.
func (s *shop) requireConsistent(killed time.Time) (again int) {
	t := s.T
	t.Helper()
	programtest.Eventually(t, func() bool { return s.Count("SELECT count(*) FROM staged_jobs") == 0 })
	s.stop()

	require.Len(t, s.Stripe.Charges(), len(s.paid))
	require.Empty(t, s.Stripe.OrdersChargedTwice())
	require.Len(t, s.Stripe.Refunds(), len(s.refunds))
	for _, refund := range s.Stripe.Refunds() {
		require.Contains(t, s.refunds, refund.Name)
	}
	require.EqualValues(t, map[string]int64{"usd": int64(2500*len(s.paid) - 500*len(s.refunds))}, s.Stripe.MoneyMoved())

	type row struct {
		ID       string
		Status   string
		Refunded int64
	}
	rows, err := s.Pool.Query(t.Context(), "SELECT id::text, status::text, amount_refunded FROM orders")
	require.NoError(t, err)
	recorded, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	require.NoError(t, err)
	expected := map[string]row{}
	events := map[string]int{} // by type, order and refund
	for id := range s.paid {
		require.Len(t, s.Stripe.ChargesByOrder(id), 1)
		expected[id] = row{id, "paid", 0}
		events["order.paid "+id+" "]++
	}
	for id := range s.approved {
		events["order.requires_action "+id+" "]++
	}
	for id := range s.refused {
		expected[id] = row{id, "payment_failed", 0}
		events["order.payment_failed "+id+" "]++
	}
	for id, order := range s.refunds {
		expected[order] = row{order, "partially_refunded", 500}
		events["refund.created "+order+" "+id]++
	}
	found := map[string]row{}
	for _, r := range recorded {
		found[r.ID] = r
	}
	require.Equal(t, expected, found)
	require.Equal(t, len(s.refunds), s.Count("SELECT count(*) FROM refunds WHERE status = 'succeeded'"))
	require.Equal(t, len(expected)+len(s.refunds), s.Count("SELECT count(*) FROM idempotency_keys WHERE recovery_point = 'finished'"))
	compared := fmt.Sprintf("Compared %d intents and %d refunds", len(expected), len(s.refunds))
	programtest.Eventually(t, func() bool { // it leaves out what is younger than COMPLETER_GRACE
		report := labtest.Run(t, s.Environ, "reconcile")
		require.Contains(t, report, "Discrepancies: 0")
		return strings.Contains(report, compared)
	})

	received := map[string]int{}
	for _, e := range s.events {
		received[e.Type+" "+e.Data.OrderID+" "+e.Data.RefundID]++
	}
	require.Equal(t, events, received)
	mails := map[string]int{}
	for _, mail := range s.mail.Received() {
		mails[receiptOf.FindStringSubmatch(mail)[1]]++
	}
	require.Len(t, mails, len(s.paid))
	return s.repeated("receipt.done", mails, killed) + s.repeated("event.done", s.posts, killed)
}

// repeated returns how many deliveries came again. Each is an attempt that the audit records count, by order.
func (s *shop) repeated(action string, deliveries map[string]int, killed time.Time) (again int) {
	rows, err := s.Pool.Query(s.T.Context(), `
SELECT resource_id,
       count(*),
       sum((data->>'attempt')::int),
       max(created_at)
  FROM audit_records
 WHERE action = $1
 GROUP BY resource_id`, action)
	require.NoError(s.T, err)
	type order struct {
		ID             string
		Jobs, Attempts int
		Last           time.Time
	}
	sent, err := pgx.CollectRows(rows, pgx.RowToStructByPos[order])
	require.NoError(s.T, err)
	require.Len(s.T, sent, len(deliveries), action)
	for _, o := range sent {
		n := deliveries[o.ID]
		require.GreaterOrEqual(s.T, n, o.Jobs, "%s of %s", action, o.ID)
		require.LessOrEqual(s.T, n, o.Attempts, "%s of %s", action, o.ID)
		if n > o.Jobs {
			require.Greater(s.T, o.Last, killed, "%s of %s", action, o.ID)
		}
		again += n - o.Jobs
	}
	return again
}
