package orderstest

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

type responseLog struct {
	mu        sync.Mutex
	responses []clientResponse
}

type clientResponse struct {
	accountID uuid.UUID
	key       idempotency.Key
	response  idempotency.Response
}

// RecordResponse records what a client receives. It also checks that a new failure follows a definite response of the
// provider. The exception is the end of the charge window while the provider rejects our API key, and so each search.
func (f *Fixture) RecordResponse(req idempotency.Request, result idempotency.Result, err error) {
	f.T.Helper()
	if err != nil {
		require.Zero(f.T, result.Response.Status, "an error has no response")
		return
	}
	f.responses.mu.Lock()
	f.responses.responses = append(f.responses.responses, clientResponse{req.AccountID, req.Key, result.Response})
	f.responses.mu.Unlock()
	if result.Replayed || result.Response.Status == http.StatusCreated {
		return
	}
	require.Regexp(f.T, ` (200|400|402)\b|^search 401$`, f.Transport.Calls(), "a failure is stored before the provider's response was definite")
}

type orderState struct {
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
	Created         int // number of audit records
	Paid            int
	Failed          int
}

func (f *Fixture) orderStates() []orderState {
	f.T.Helper()
	rows, err := f.Pool.Query(f.T.Context(), `
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
	require.NoError(f.T, err)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[orderState])
	require.NoError(f.T, err)
	return found
}

// CheckInvariants requires that the charges, the records and the responses of the whole shop agree.
func CheckInvariants(t *testing.T, f *Fixture) {
	t.Helper()
	require.Empty(t, f.Transport.Violations(), "while a call to the provider was sent")
	rows := f.orderStates()
	charges := f.Stripe.Charges()

	checkCharges(t, rows, charges)
	checkRecords(t, rows)
	checkResponses(t, rows, f.responses.responses)
	CheckProviderKeys(t, f.Stripe.Requests())

	require.Zero(t, f.Count("SELECT count(*) FROM idempotency_keys WHERE recovery_point <> 'finished'"),
		"every key is finished")
	require.Zero(t, f.Count(`
SELECT count(*)
  FROM orders o
  JOIN idempotency_keys k ON k.account_id = o.account_id AND k.idempotency_key = o.idempotency_key,
       convert_from(k.response_body, 'UTF8') AS body
 WHERE k.response_code IN (402, 422)
   AND (o.failure_code, o.decline_code) IS DISTINCT FROM (body::json->>'code', body::json->>'decline_code')`),
		"a failed order has the reason of its response")
	require.Zero(t, f.Count("SELECT count(*) FROM staged_jobs j WHERE j.kind = 'receipt' AND NOT EXISTS (SELECT FROM orders o WHERE o.account_id = j.account_id AND o.id::text = j.args->>'order_id' AND o.paid_at IS NOT NULL)"),
		"no receipt without a paid order")
}

func checkCharges(t *testing.T, rows []orderState, charges []stripetest.Charge) {
	t.Helper()
	charged, recorded := map[string]int64{}, map[string]int64{}
	orderIDs := map[string]bool{}
	for _, charge := range charges {
		if charge.OrderID == "" {
			continue // of another program
		}
		require.False(t, orderIDs[charge.OrderID], "order %s is charged at most once", charge.OrderID)
		orderIDs[charge.OrderID] = true
		i := slices.IndexFunc(rows, func(r orderState) bool { return r.PaymentIntentID != nil && *r.PaymentIntentID == charge.IntentID })
		require.GreaterOrEqual(t, i, 0, "charge %s belongs to an order", charge.ID)
		require.NotNil(t, rows[i].PaidAt, "charge %s belongs to a paid order", charge.ID)
		require.Equal(t, charge.OrderID, rows[i].ID.String())
		charged[rows[i].AccountID.String()+charge.Currency] += charge.Amount
	}
	for _, row := range rows {
		if row.PaidAt != nil {
			recorded[row.AccountID.String()+row.Currency] += row.Amount
		}
		if row.ResponseCode != nil && *row.ResponseCode != http.StatusCreated {
			require.False(t, orderIDs[row.ID.String()], "order %s has response %d and is charged", row.ID, *row.ResponseCode)
		}
	}
	require.Equal(t, charged, recorded, "the sum of the charges is the sum of the paid orders")
}

func checkRecords(t *testing.T, rows []orderState) {
	t.Helper()
	for _, row := range rows {
		require.Equal(t, 1, row.Created, "one audit record of the creation")
		require.Equal(t, row.PaidAt != nil, row.Status == orders.StatusPaid)
		paid, failed := 0, 0
		switch row.Status {
		case orders.StatusPaid:
			paid = 1
		case orders.StatusPaymentFailed:
			failed = 1
		}
		require.Equal(t, paid, row.Paid, "one audit record of the payment")
		require.Equal(t, paid, row.Jobs, "a paid order has one receipt")
		require.Equal(t, failed, row.Failed)
		if row.ResponseCode != nil {
			require.Equal(t, row.PaidAt != nil, *row.ResponseCode == http.StatusCreated, "a paid order, and no other, has response 201")
		}
	}
}

func checkResponses(t *testing.T, rows []orderState, received []clientResponse) {
	t.Helper()
	type request struct {
		accountID uuid.UUID
		key       idempotency.Key
	}
	first := map[request]idempotency.Response{}
	for _, r := range received {
		id := request{r.accountID, r.key}
		if before, known := first[id]; known {
			require.Equal(t, before, r.response, "all responses of a key are the same")
			continue
		}
		first[id] = r.response
		i := slices.IndexFunc(rows, func(row orderState) bool { return row.AccountID == r.accountID && row.Key == r.key })
		require.GreaterOrEqual(t, i, 0)
		require.Equal(t, r.response.Status == http.StatusCreated, rows[i].PaidAt != nil, "the client of a paid order, and no other, received 201")
		if rows[i].PaidAt == nil {
			continue
		}
		var body orders.Order
		decoder := json.NewDecoder(bytes.NewReader(r.response.Body))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&body))
		require.Equal(t, rows[i].ID, body.ID)
		require.Equal(t, rows[i].Amount, body.Amount)
		require.Equal(t, rows[i].PaymentIntentID, body.PaymentIntentID)
		require.True(t, rows[i].PaidAt.Equal(body.PaidAt.Time))
	}
}

// CheckProviderKeys requires that a provider key was used for one request.
func CheckProviderKeys(t *testing.T, requests []stripetest.Request) {
	t.Helper()
	type use struct{ orderID, path, body string }
	uses := map[string]use{}
	for _, r := range requests {
		if r.Key == "" {
			continue
		}
		now := use{r.OrderID, r.Path, string(r.Body)}
		if before, known := uses[r.Key]; known {
			require.Equal(t, before, now, "provider key %s", r.Key)
		}
		uses[r.Key] = now
	}
}

func (b *responseLog) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.responses = nil
}

// CheckFinal is CheckResponse and CheckInvariants.
func (f *Fixture) CheckFinal() {
	f.T.Helper()
	f.CheckResponse()
	CheckInvariants(f.T, f)
}

// CheckResponse requires that the order, its response and the charges agree.
func (f *Fixture) CheckResponse() {
	f.T.Helper()
	result, err := f.Resume()
	require.NoError(f.T, err)
	charges := f.Stripe.ChargesByOrder(OrderID(f.Account, f.Key).String())
	switch result.Response.Status {
	case http.StatusCreated:
		require.Equal(f.T, orders.StatusPaid, f.GetOrder().Status)
		require.Len(f.T, charges, 1)
		require.EqualValues(f.T, OrderAmount, charges[0].Amount)
	default:
		require.Equal(f.T, orders.StatusPaymentFailed, f.GetOrder().Status)
		require.Empty(f.T, charges)
		for _, intent := range f.Intents() {
			if current := f.GetOrder().PaymentIntentID; current != nil && *current == intent.ID {
				require.Contains(f.T, []string{"canceled", "requires_payment_method"}, intent.Status, "no later confirm charges it")
			}
		}
		require.Equal(f.T, map[string]string{"Content-Type": "application/problem+json"}, result.Response.Headers)
		if f.Count("SELECT count(*) FROM audit_records WHERE resource_id = $1 AND action = 'order.requires_action'", OrderID(f.Account, f.Key).String()) > 0 {
			CustomerCannotPay(f) // with another card (R23)
		}
	}
}
