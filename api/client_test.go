package api_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/orders-api/client"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments/stripetest"
)

// The types of package client have every member of the API's responses.
func TestClient_contract(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, err := client.New(client.Config{BaseURL: f.url, APIKey: f.apiKey, Transport: f.client.Transport})
	require.NoError(t, err)
	params := client.OrderParams{
		Email: email, Currency: "usd", PaymentMethod: "pm_card_visa",
		Items:    []client.Item{{SKU: "tea", Description: "Assam", Quantity: 2, UnitAmount: 1250}},
		Metadata: map[string]string{"note": "a\x00b"},
	}
	key := client.NewKey()
	order, err := c.CreateOrder(t.Context(), key, params)
	require.NoError(t, err)
	require.Equal(t, "paid", order.Status)
	require.EqualValues(t, 2500, order.Amount)
	require.Equal(t, params.Items, order.Items)
	require.Equal(t, params.Metadata, order.Metadata)
	require.NotEmpty(t, order.PaymentIntentID)
	require.NotNil(t, order.PaidAt)

	again, err := c.CreateOrder(t.Context(), key, params)
	require.NoError(t, err)
	require.Equal(t, order, again)
	read, err := c.GetOrder(t.Context(), order.ID)
	require.NoError(t, err)
	require.Equal(t, order, read)

	refundKey := client.NewKey()
	refund, err := c.CreateRefund(t.Context(), refundKey, order.ID, client.RefundParams{Amount: 1000, Reason: "duplicate"})
	require.NoError(t, err)
	require.Equal(t, []any{order.ID, int64(1000), "usd", "duplicate", "succeeded"},
		[]any{refund.OrderID, refund.Amount, refund.Currency, refund.Reason, refund.Status})
	require.NotEmpty(t, refund.ProviderRefundID)
	require.False(t, refund.CreatedAt.IsZero())
	status, err := c.GetKey(t.Context(), refundKey)
	require.NoError(t, err)
	require.Equal(t, []any{refundKey, "finished", "create_refund", http.StatusCreated, order.ID},
		[]any{status.Key, status.State, status.Operation, status.Response.Status, status.Order.ID})
	order, err = c.GetOrder(t.Context(), order.ID)
	require.NoError(t, err)
	require.Equal(t, "partially_refunded", order.Status)

	params.PaymentMethod = "pm_card_visa_chargeDeclinedInsufficientFunds"
	_, err = c.CreateOrder(t.Context(), client.NewKey(), params)
	var problem *client.Problem
	require.ErrorAs(t, err, &problem)
	require.Equal(t, "insufficient_funds", problem.DeclineCode)
	declined, err := c.GetOrder(t.Context(), problem.OrderID)
	require.NoError(t, err)
	require.Nil(t, declined.PaidAt)
	require.Equal(t, &client.Failure{Code: "card_declined", DeclineCode: "insufficient_funds"}, declined.Failure)

	page, err := c.ListOrders(t.Context(), 1, declined.ID)
	require.NoError(t, err)
	require.Equal(t, client.OrderPage{Data: []client.Order{order}}, page)
	_, err = c.ListOrders(t.Context(), 0, "")
	require.ErrorAs(t, err, &problem)
	require.Equal(t, "/limit", problem.Errors[0].Pointer)
	_, err = c.CreateOrder(t.Context(), key, params)
	require.ErrorAs(t, err, &problem)
	require.Equal(t, client.RetryNever, problem.Retry, "another request under a used key")
}

// A client that follows only the member retry and Retry-After never pays twice,
// whatever faults the network and the provider have. Its result is true: a paid order
// has one charge, a failed one none.
//
// A failure names the seed that repeats it.
func TestClient_followsRetry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	network := newFaultProxy(t, f)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	paid, results := 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		c := newSimulatedClient(t, f, network)
		apiClient, err := client.New(client.Config{BaseURL: network.url, APIKey: f.apiKey, Transport: transport, Sleep: c.wait})
		require.NoError(t, err)
		defer func() { _ = c.endFaults() }() // also after a failure
		response, err := c.run(apiClient)
		require.NoError(t, c.endFaults())

		var problem *client.Problem
		switch {
		case err == nil:
			paid++
			results["paid"]++
			require.Contains(t, string(response.Body), `"id":"`+c.orderID()+`"`)
			charges := f.stripe.ChargesByOrder(c.orderID())
			require.Len(t, charges, 1)
			require.EqualValues(t, 4300, charges[0].Amount)
		case errors.As(err, &problem):
			results[problem.Type]++
			require.Equal(t, client.RetryNewKey, problem.Retry)
			if c.intent != "" {
				require.Error(t, f.stripe.ConfirmAsCustomer(c.intent, "pm_card_visa"), "charged after its final response")
			}
			require.Empty(t, f.stripe.ChargesByOrder(c.orderID()))
		default:
			require.NoError(t, err)
		}
		require.Len(t, f.stripe.Charges(), paid, "no charge of another order")
		require.Empty(t, f.stripe.OrdersChargedTwice())

		again, err := apiClient.Send(context.Background(), c.request)
		require.NoError(t, err)
		require.True(t, again.Replayed())
		require.Equal(t, string(response.Body), string(again.Body))
	})
	t.Log(results, network.counts)
}

// simulatedClient sends one order through faults of the network and the provider.
type simulatedClient struct {
	t       *rapid.T
	fixture *fixture
	network *faultProxy
	request client.Request
	faults  []*stripetest.Injection
	waits   int
	intent  string // whose client secret the customer has
	actions int
}

func newSimulatedClient(t *rapid.T, f *fixture, network *faultProxy) *simulatedClient {
	t.Helper()
	card := rapid.SampledFrom([]string{
		"pm_card_visa", "pm_card_visa", "pm_card_visa", "pm_card_chargeDeclinedExpiredCard", "pm_card_authenticationRequired", "pm_card_nobody",
	}).Draw(t, "card")
	c := &simulatedClient{t: t, fixture: f, network: network, request: client.Request{
		Key: client.NewKey(), Path: "/v1/orders", Body: []byte(orderBody(withMember("payment_method", card))),
	}}
	type strike struct {
		fault    stripetest.Fault
		endpoint string
		times    int
	}
	draw := rapid.Custom(func(t *rapid.T) strike {
		return strike{
			rapid.SampledFrom([]stripetest.Fault{
				stripetest.CloseBefore, stripetest.RateLimit, stripetest.Unavailable, stripetest.LockTimeout, stripetest.ErrorBefore,
				stripetest.ErrorAfter, stripetest.ErrorLater, stripetest.CloseAfter, stripetest.ResetAfter, stripetest.CutBody, stripetest.BadGateway,
			}).Draw(t, "fault"),
			rapid.SampledFrom([]string{createEndpoint, confirmEndpoint, readEndpoint}).Draw(t, "endpoint"),
			rapid.IntRange(1, 4).Draw(t, "times"),
		}
	})
	for _, s := range rapid.SliceOfN(draw, 0, 4).Draw(t, "faults of the provider") {
		c.faults = append(c.faults, f.stripe.Inject(stripetest.Rule{Fault: s.fault, Endpoint: s.endpoint, Times: s.times}))
	}
	var hold *stripetest.Injection
	if fault := rapid.SampledFrom([]stripetest.Fault{"", stripetest.HoldArrival, stripetest.HoldRunning, stripetest.HoldResponse}).Draw(t, "hold"); fault != "" {
		hold = f.stripe.Inject(stripetest.Rule{Fault: fault, Endpoint: rapid.SampledFrom([]string{createEndpoint, confirmEndpoint}).Draw(t, "held")})
	}
	network.plan(rapid.SliceOfN(rapid.SampledFrom(networkFaults), 0, 6).Draw(t, "faults of the network"), hold)
	return c
}

// errCrash ends the client's process. It has stored the key and the request.
var errCrash = errors.New("the program crashes")

// run sends the request until it has a response, and again after each crash.
func (c *simulatedClient) run(apiClient *client.Client) (client.Response, error) {
	for {
		response, err := apiClient.Do(context.Background(), c.request)
		var required *client.ActionRequiredError
		switch {
		case errors.As(err, &required):
			c.act(required.Action)
		case !errors.Is(err, errCrash):
			return response, err
		}
		if rapid.Bool().Draw(c.t, "resumed by the server meanwhile") {
			key := idempotency.KeyID(c.fixture.account, idempotency.Key(c.request.Key))
			c.network.inFlight.Go(func() { _, _ = c.fixture.service.Resume(context.Background(), c.fixture.account, key) })
		}
	}
}

// act is what the customer does, who may also do nothing. An error means that a request
// has locked the intent, or that it is not open any more.
func (c *simulatedClient) act(action client.Action) {
	c.intent = action.PaymentIntentID
	if c.actions++; c.actions > 5 {
		_ = c.fixture.stripe.Authenticate(c.intent, true)
	}
	switch rapid.SampledFrom([]string{"nothing", "approves", "declines", "declines and pays with another card"}).Draw(c.t, "the customer") {
	case "approves":
		_ = c.fixture.stripe.Authenticate(c.intent, true)
	case "declines":
		_ = c.fixture.stripe.Authenticate(c.intent, false)
	case "declines and pays with another card":
		_ = c.fixture.stripe.Authenticate(c.intent, false)
		_ = c.fixture.stripe.ConfirmAsCustomer(c.intent, "pm_card_visa")
	}
}

// wait replaces the client's sleep. Meanwhile a fault may end, the lease may end, or
// the client may crash.
func (c *simulatedClient) wait(context.Context, time.Duration) error {
	c.waits++
	if c.waits >= 12 {
		c.network.release()
		c.endLease()
	}
	switch rapid.SampledFrom([]string{"nothing", "release", "end of the lease", "crash"}).Draw(c.t, "meanwhile") {
	case "release":
		c.network.release()
	case "end of the lease":
		c.endLease()
	case "crash":
		return errCrash
	}
	return nil
}

// endFaults ends all faults and waits until no request is in flight. It returns the
// responses that violated the contract.
func (c *simulatedClient) endFaults() error {
	for _, fault := range c.faults {
		fault.Release()
	}
	c.network.release()
	c.network.plan(nil, nil)
	return c.network.waitIdle()
}

// endLease ends the lease of a run that still holds the key.
func (c *simulatedClient) endLease() {
	_, err := c.fixture.pool.Exec(context.Background(), `
UPDATE idempotency_keys
   SET locked_at = locked_at - interval '1 hour'
 WHERE account_id = $1
   AND idempotency_key = $2`, c.fixture.account, string(c.request.Key))
	require.NoError(c.t, err)
}

// orderID is the id of the order that the key creates.
func (c *simulatedClient) orderID() string {
	return idempotency.DeriveID("order", c.fixture.account, idempotency.Key(c.request.Key)).String()
}
