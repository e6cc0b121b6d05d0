package orders_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

// books are what the outside saw: every stored answer that anybody was given.
type books struct {
	mu      sync.Mutex
	answers []seen
}

type seen struct {
	accountID uuid.UUID
	key       idempotency.Key
	response  idempotency.Response
}

// note writes an answer down. A failure that is heard for the first time is
// invariant I17's: the provider must have said something definite before.
func (s *shop) note(req orders.Request, result idempotency.Result, err error) {
	s.t.Helper()
	if err != nil {
		require.Zero(s.t, result.Response.Status, "an error comes without an answer")
		return
	}
	s.books.mu.Lock()
	s.books.answers = append(s.books.answers, seen{req.AccountID, req.Key, result.Response})
	s.books.mu.Unlock()
	if result.Replayed || result.Response.Status == http.StatusCreated {
		return
	}
	require.Regexp(s.t, ` (200|400|402)\b`, s.wire.said(), "I17: a failure before the provider had given a definite answer")
}

// bookRow is an order with its key, or without when that was reaped.
type bookRow struct {
	ID              uuid.UUID
	AccountID       uuid.UUID
	Key             idempotency.Key
	Amount          int64
	Currency        string
	Status          orders.Status
	PaidAt          *time.Time
	PaymentIntentID *string
	RecoveryPoint   *string
	ResponseCode    *int
	Jobs            int
	Created         int // audit records
	Paid            int
	Failed          int
}

func (s *shop) bookRows() []bookRow {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), `
SELECT o.id,
       o.account_id,
       o.idempotency_key AS key,
       o.amount,
       o.currency,
       o.status,
       o.paid_at,
       o.payment_intent_id,
       k.recovery_point,
       k.response_code,
       (SELECT count(*) FROM staged_jobs j WHERE j.account_id = o.account_id AND j.kind = 'receipt' AND j.args->>'order_id' = o.id::text) AS jobs,
       (SELECT count(*) FROM audit_records a WHERE a.account_id = o.account_id AND a.resource_id = o.id::text AND a.action = 'order.created') AS created,
       (SELECT count(*) FROM audit_records a WHERE a.account_id = o.account_id AND a.resource_id = o.id::text AND a.action = 'order.paid') AS paid,
       (SELECT count(*) FROM audit_records a WHERE a.account_id = o.account_id AND a.resource_id = o.id::text AND a.action = 'order.payment_failed') AS failed
  FROM orders o
  LEFT JOIN idempotency_keys k ON k.account_id = o.account_id AND k.idempotency_key = o.idempotency_key`)
	require.NoError(s.t, err)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[bookRow])
	require.NoError(s.t, err)
	return found
}

// checkBooks asks for the invariants of a shop in which nothing is under way any
// more. Their numbers are those of RELIABILITY.md section 3.
func checkBooks(t *testing.T, s *shop) {
	t.Helper()
	require.Empty(t, s.wire.wrong(), "R6, I13 and I18, seen when a request left")
	rows := s.bookRows()
	charges := s.stripe.Charges()

	checkCharges(t, rows, charges)
	checkRows(t, rows)
	checkAnswers(t, rows, s.books.answers)
	checkProviderKeys(t, s.stripe.Requests())

	require.Zero(t, s.count("SELECT count(*) FROM idempotency_keys WHERE recovery_point <> 'finished' AND needs_review_at IS NULL"),
		"I5: nothing is unfinished")
	require.Zero(t, s.count("SELECT count(*) FROM staged_jobs j WHERE NOT EXISTS (SELECT FROM orders o WHERE o.id::text = j.args->>'order_id' AND o.paid_at IS NOT NULL)"),
		"no receipt without a paid order")
}

// checkCharges compares the provider's ledger with ours.
func checkCharges(t *testing.T, rows []bookRow, charges []stripetest.Charge) {
	t.Helper()
	taken, booked := map[string]int64{}, map[string]int64{}
	orderIDs := map[string]bool{}
	for _, charge := range charges {
		if charge.OrderID == "" {
			continue // none of our business
		}
		require.False(t, orderIDs[charge.OrderID], "I1: order %s is charged at most once", charge.OrderID)
		orderIDs[charge.OrderID] = true
		i := slices.IndexFunc(rows, func(r bookRow) bool { return r.PaymentIntentID != nil && *r.PaymentIntentID == charge.IntentID })
		require.GreaterOrEqual(t, i, 0, "I3: charge %s belongs to an order", charge.ID)
		require.NotNil(t, rows[i].PaidAt, "I3: charge %s belongs to a paid order", charge.ID)
		require.Equal(t, charge.OrderID, rows[i].ID.String())
		taken[rows[i].AccountID.String()+charge.Currency] += charge.Amount
	}
	for _, row := range rows {
		if row.PaidAt != nil {
			booked[row.AccountID.String()+row.Currency] += row.Amount
		}
		if row.ResponseCode != nil && *row.ResponseCode != http.StatusCreated {
			require.False(t, orderIDs[row.ID.String()], "I14: order %s answered %d and is charged", row.ID, *row.ResponseCode)
		}
	}
	require.Equal(t, taken, booked, "I11: what was taken is what is booked")
}

// checkRows compares our own tables with each other.
func checkRows(t *testing.T, rows []bookRow) {
	t.Helper()
	for _, row := range rows {
		require.Equal(t, 1, row.Created, "I15: created once")
		require.Equal(t, row.PaidAt != nil, row.Status == orders.StatusPaid)
		paid, failed := 0, 0
		switch row.Status {
		case orders.StatusPaid:
			paid = 1
		case orders.StatusPaymentFailed:
			failed = 1
		}
		require.Equal(t, paid, row.Paid, "I15: paid once")
		require.Equal(t, paid, row.Jobs, "I2: a paid order has one receipt")
		require.Equal(t, failed, row.Failed)
		if row.ResponseCode != nil {
			require.Equal(t, row.PaidAt != nil, *row.ResponseCode == http.StatusCreated, "I3: a paid order answers 201, and nothing else does")
		}
	}
}

// checkAnswers compares what clients were given with what is so.
func checkAnswers(t *testing.T, rows []bookRow, answers []seen) {
	t.Helper()
	type request struct {
		accountID uuid.UUID
		key       idempotency.Key
	}
	first := map[request]idempotency.Response{}
	for _, answer := range answers {
		id := request{answer.accountID, answer.key}
		if before, known := first[id]; known {
			require.Equal(t, before, answer.response, "I4: one key, one answer")
			continue
		}
		first[id] = answer.response
		i := slices.IndexFunc(rows, func(r bookRow) bool { return r.AccountID == answer.accountID && r.Key == answer.key })
		require.GreaterOrEqual(t, i, 0)
		require.Equal(t, answer.response.Status == http.StatusCreated, rows[i].PaidAt != nil, "I2: whoever heard 201 has paid")
		if rows[i].PaidAt == nil {
			continue
		}
		var body orders.Order
		decoder := json.NewDecoder(bytes.NewReader(answer.response.Body))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&body))
		require.Equal(t, rows[i].ID, body.ID)
		require.Equal(t, rows[i].Amount, body.Amount)
		require.Equal(t, rows[i].PaymentIntentID, body.PaymentIntentID)
		require.True(t, rows[i].PaidAt.Equal(*body.PaidAt))
	}
}

// checkProviderKeys is invariant I12: one key, one order, one body.
func checkProviderKeys(t *testing.T, requests []stripetest.Request) {
	t.Helper()
	type use struct{ orderID, path, body string }
	uses := map[string]use{}
	for _, r := range requests {
		if r.Key == "" {
			continue
		}
		now := use{r.OrderID, r.Path, string(r.Body)}
		if before, known := uses[r.Key]; known {
			require.Equal(t, before, now, "I12: provider key %s", r.Key)
		}
		uses[r.Key] = now
	}
}

// forget drops what was written down.
func (b *books) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers = nil
}
