package api_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
	"example.com/orders-api/payments/stripetest"
)

const authenticatedCard = "pm_card_threeDSecure2Required"

func actionOf(t *testing.T, got response) client.Action {
	t.Helper()
	status := got.keyStatus(t)
	require.Equal(t, "requires_action", status.State)
	require.Equal(t, "5", got.header.Get("Retry-After"))
	require.Equal(t, "no-store", got.header.Get("Cache-Control"))
	require.Equal(t, "use_stripe_sdk", status.Action.Type)
	require.Regexp(t, "^"+status.Action.PaymentIntentID+"_secret_", status.Action.ClientSecret)
	return *status.Action
}

func TestAction(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for final, approves := range map[int]bool{http.StatusCreated: true, http.StatusPaymentRequired: false} {
		key, order := newKey(), orderBody(withMember("payment_method", authenticatedCard))
		var required client.Action
		for range 2 {
			got := f.create(t, key, order)
			require.Equal(t, http.StatusAccepted, got.status)
			require.Equal(t, keyPath(key), got.header.Get("Location"))
			required = actionOf(t, got)
			require.Equal(t, required, actionOf(t, f.getKey(t, key)), "the same secret")
		}
		orderPath := f.getKey(t, key).keyStatus(t).Order.Href
		require.Contains(t, string(f.get(t, orderPath).body), `"status":"requires_action"`)

		if approves { // and an event finishes the order, which a client waits for
			waiting := f.sendAsync(f.request(t, http.MethodGet, keyPath(key), "", prefer("wait=30")))
			f.awaitWaiters(t, 1)
			require.NoError(t, f.Stripe.Authenticate(required.PaymentIntentID, true))
			requireReceived(t, f.deliverEvent(t, "payment_intent.succeeded"))
			got := receive(t, waiting)
			require.Equal(t, "wait=30", got.header.Get("Preference-Applied"))
			require.Equal(t, "finished", got.keyStatus(t).State)
		} else { // and the next read of the key finds it
			require.NoError(t, f.Stripe.Authenticate(required.PaymentIntentID, false))
			require.Equal(t, final, f.awaitFinished(t, key).Response.Status)
		}
		got := f.create(t, key, order)
		require.Equal(t, final, got.status)
		require.NotContains(t, string(got.body), "client_secret")
		require.Error(t, f.Stripe.ConfirmAsCustomer(required.PaymentIntentID, "pm_card_visa"), "charged after the final response")
		f.requireReplays(t, key, order, got)
	}
}

func TestAction_providerUnavailable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey()
	actionOf(t, f.create(t, key, orderBody(withMember("payment_method", authenticatedCard))))
	f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: readEndpoint, Times: stripetest.Always})
	require.Equal(t, "temporarily-unavailable", f.getKey(t, key).problem(t).slug())
}

// Clients that poll one key share one read of the provider (R25), and hold no permit while
// they wait for it.
func TestAction_sharedRead(t *testing.T) {
	t.Parallel()
	const clients = 100
	f := newFixture(t, poolSize(4), limiterBounds(1, 2*clients))
	key, order := newKey(), orderBody(withMember("payment_method", authenticatedCard))
	intent := actionOf(t, f.create(t, key, order)).PaymentIntentID
	held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: readEndpoint})
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	first := f.sendAsync(f.request(t, http.MethodGet, keyPath(key), "").WithContext(ctx))
	<-held.Reached()
	polls := make([]<-chan asyncResponse, clients)
	for i := range polls {
		polls[i] = f.sendAsync(f.request(t, http.MethodGet, keyPath(key), ""))
	}
	hangUp()
	require.ErrorIs(t, (<-first).err, context.Canceled, "its read continues, because others wait for it")
	require.Eventually(t, func() bool { return f.limiter.Stats().Running+f.limiter.Stats().Backlog == 0 }, stepTimeout, 5*time.Millisecond)
	released := time.Now()
	held.Release()
	for _, poll := range polls {
		require.Equal(t, intent, actionOf(t, receive(t, poll)).PaymentIntentID)
	}
	shared := len(f.Stripe.Requests())
	// A slow machine can send some of the polls later than a second after the read.
	require.LessOrEqual(t, shared, 3+int(time.Since(released)/time.Second), "the create, the confirm and one read per second")

	require.NoError(t, f.Stripe.Authenticate(intent, true))
	require.Equal(t, http.StatusCreated, f.awaitFinished(t, key).Response.Status)
	require.Len(t, f.Stripe.Requests(), shared+2, "one more read, and that of the run")
}

func (f *fixture) awaitFinished(t *testing.T, key string) (status client.KeyStatus) {
	t.Helper()
	require.Eventually(t, func() bool {
		status = f.getKey(t, key).keyStatus(t)
		return status.State == "finished"
	}, stepTimeout, 20*time.Millisecond)
	return status
}

// A failover can lose the rows of a run between its last COMMIT and its response, here the release of its lease.
func TestAction_rowsLostBeforeResponse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, err := f.Pool.Exec(t.Context(), `
CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN DELETE FROM idempotency_keys WHERE id = OLD.id; RETURN NULL; END';
CREATE TRIGGER lose AFTER UPDATE ON idempotency_keys FOR EACH ROW WHEN (NEW.locked_at IS NULL) EXECUTE FUNCTION lose()`)
	require.NoError(t, err)
	got := f.create(t, newKey(), orderBody(withMember("payment_method", authenticatedCard)))
	require.Equal(t, http.StatusServiceUnavailable, got.status)
	require.Equal(t, client.RetrySameKey, got.problem(t).Retry)
}
