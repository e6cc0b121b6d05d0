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

// What the client knows of orders is what the API tells of them.
func TestTheClientKnowsTheContract(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	shop, err := client.New(client.Config{BaseURL: f.url, APIKey: f.apiKey, Transport: f.client.Transport})
	require.NoError(t, err)
	params := client.OrderParams{
		Email: email, Currency: "usd", PaymentMethod: "pm_card_visa",
		Items:    []client.Item{{SKU: "tea", Description: "Assam", Quantity: 2, UnitAmount: 1250}},
		Metadata: map[string]string{"note": "a\x00b"},
	}
	key := client.NewKey()
	order, err := shop.CreateOrder(t.Context(), key, params)
	require.NoError(t, err)
	require.Equal(t, "paid", order.Status)
	require.EqualValues(t, 2500, order.Amount)
	require.Equal(t, params.Items, order.Items)
	require.Equal(t, params.Metadata, order.Metadata)
	require.NotEmpty(t, order.PaymentIntentID)
	require.NotNil(t, order.PaidAt)

	again, err := shop.CreateOrder(t.Context(), key, params)
	require.NoError(t, err)
	require.Equal(t, order, again)
	read, err := shop.GetOrder(t.Context(), order.ID)
	require.NoError(t, err)
	require.Equal(t, order, read)

	refundKey := client.NewKey()
	refund, err := shop.CreateRefund(t.Context(), refundKey, order.ID, client.RefundParams{Amount: 1000, Reason: "duplicate"})
	require.NoError(t, err)
	require.Equal(t, []any{order.ID, int64(1000), "usd", "duplicate", "succeeded"},
		[]any{refund.OrderID, refund.Amount, refund.Currency, refund.Reason, refund.Status})
	require.NotEmpty(t, refund.RefundID)
	require.False(t, refund.CreatedAt.IsZero())
	status, err := shop.GetKey(t.Context(), refundKey)
	require.NoError(t, err)
	require.Equal(t, []any{refundKey, "finished", "create_refund", http.StatusCreated, order.ID},
		[]any{status.Key, status.State, status.Operation, status.Response.Status, status.Order.ID})
	order, err = shop.GetOrder(t.Context(), order.ID)
	require.NoError(t, err)
	require.Equal(t, "partially_refunded", order.Status)

	params.PaymentMethod = "pm_card_visa_chargeDeclinedInsufficientFunds"
	_, err = shop.CreateOrder(t.Context(), client.NewKey(), params)
	var problem *client.Problem
	require.ErrorAs(t, err, &problem)
	require.Equal(t, "insufficient_funds", problem.DeclineCode)
	declined, err := shop.GetOrder(t.Context(), problem.OrderID)
	require.NoError(t, err)
	require.Nil(t, declined.PaidAt)

	page, err := shop.ListOrders(t.Context(), 1, declined.ID)
	require.NoError(t, err)
	require.Equal(t, client.OrderPage{Data: []client.Order{order}}, page)
	_, err = shop.ListOrders(t.Context(), 0, "")
	require.ErrorAs(t, err, &problem)
	require.Equal(t, "/limit", problem.Errors[0].Pointer)
	_, err = shop.CreateOrder(t.Context(), key, params)
	require.ErrorAs(t, err, &problem)
	require.Equal(t, client.RetryNever, problem.Retry, "another request under a used key")
}

// A client that follows nothing but the problem's retry member and Retry-After
// never charges twice, whatever the network and the provider do meanwhile. What
// it is told is true: one charge behind "paid", none behind "declined".
//
// A failure names the seed to run it again with.
func TestAClientThatFollowsRetryNeverChargesTwice(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	network := newFaultProxy(t, f)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	paid, told := 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		c := newSimulatedClient(t, f, network)
		shop, err := client.New(client.Config{BaseURL: network.url, APIKey: f.apiKey, Transport: transport, Sleep: c.wait})
		require.NoError(t, err)
		defer func() { _ = c.endFaults() }() // also after a failure
		answer, err := c.run(shop)
		require.NoError(t, c.endFaults())

		var problem *client.Problem
		switch {
		case err == nil:
			paid++
			told["paid"]++
			require.Contains(t, string(answer.Body), `"id":"`+c.orderID()+`"`)
			charges := f.stripe.ChargesByOrder(c.orderID())
			require.Len(t, charges, 1)
			require.EqualValues(t, 4300, charges[0].Amount)
		case errors.As(err, &problem):
			told[problem.Type]++
			require.Equal(t, client.RetryNewKey, problem.Retry)
			require.Empty(t, f.stripe.ChargesByOrder(c.orderID()))
		default:
			require.NoError(t, err)
		}
		require.Len(t, f.stripe.Charges(), paid, "no charge under another name")
		require.Empty(t, f.stripe.OrdersChargedTwice())

		again, err := shop.Send(context.Background(), c.request)
		require.NoError(t, err)
		require.True(t, again.Replayed())
		require.Equal(t, string(answer.Body), string(again.Body))
	})
	t.Log(told, network.counts)
}

// customer buys one thing, with a world against it.
type simulatedClient struct {
	t       *rapid.T
	app     *fixture
	network *faultProxy
	request client.Request
	faults  []*stripetest.Injection
	waits   int
}

func newSimulatedClient(t *rapid.T, f *fixture, network *faultProxy) *simulatedClient {
	t.Helper()
	card := rapid.SampledFrom([]string{
		"pm_card_visa", "pm_card_visa", "pm_card_visa", "pm_card_chargeDeclinedExpiredCard", "pm_card_authenticationRequired", "pm_card_nobody",
	}).Draw(t, "card")
	c := &simulatedClient{t: t, app: f, network: network, request: client.Request{
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
	network.plan(rapid.SliceOfN(rapid.SampledFrom(networkFaults), 0, 6).Draw(t, "flaws of the network"), hold)
	return c
}

// errCrash ends the customer's program. The key and the request are stored.
var errCrash = errors.New("the program crashes")

// buy sends the request until it has an answer, over as many lives of the
// program as that takes.
func (c *simulatedClient) run(shop *client.Client) (client.Response, error) {
	for {
		answer, err := shop.Do(context.Background(), c.request)
		if !errors.Is(err, errCrash) {
			return answer, err
		}
		if rapid.Bool().Draw(c.t, "resumed by the server meanwhile") {
			key := idempotency.KeyID(c.app.account, idempotency.Key(c.request.Key))
			c.network.inFlight.Go(func() { _, _ = c.app.service.Resume(context.Background(), c.app.account, key) })
		}
	}
}

// wait passes the time, in which something may happen.
func (c *simulatedClient) wait(context.Context, time.Duration) error {
	c.waits++
	if c.waits >= 12 { // enough is enough
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

// makePeace ends all faults and waits until nothing is under way: what the
// provider has put off happens now. It returns what broke the contract.
func (c *simulatedClient) endFaults() error {
	for _, fault := range c.faults {
		fault.Release()
	}
	c.network.release()
	c.network.plan(nil, nil)
	return c.network.waitIdle()
}

// endLease makes a run that still holds the key one that has lost it.
func (c *simulatedClient) endLease() {
	_, err := c.app.pool.Exec(context.Background(), `
UPDATE idempotency_keys
   SET locked_at = locked_at - interval '1 hour'
 WHERE account_id = $1
   AND idempotency_key = $2`, c.app.account, string(c.request.Key))
	require.NoError(c.t, err)
}

// orderID is the order that the key made.
func (c *simulatedClient) orderID() string {
	return idempotency.DeriveID("order", c.app.account, idempotency.Key(c.request.Key)).String()
}
