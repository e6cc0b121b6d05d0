package events_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/events"
	"example.com/orders-api/internal/jobs"
)

const day = "UPDATE event_endpoints SET rotated_at = rotated_at - interval '25 hours'"

// The shop may change its secret at any time within a day, and the operator the signing key.
func TestRotate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	endpoint := newShop(t, nil)
	deliver := func(keys ...events.Key) delivered {
		t.Helper()
		f.stagePaid(f.account, 1)
		require.Equal(t, jobs.Result{events.Sent: 1}, f.runOnce(f.workers(keys...)))
		all := endpoint.received()
		return all[len(all)-1]
	}
	rotate := func(keys ...events.Key) string {
		t.Helper()
		_, secret, err := events.Rotate(t.Context(), f.pool, keys, f.account)
		require.NoError(t, err)
		return secret
	}
	requireSigned := func(d delivered, signed map[string]bool) {
		t.Helper()
		for secret, want := range signed {
			_, err := d.verify(secret)
			require.Equal(t, want, err == nil, "%v", err)
		}
	}
	first := f.set(endpoint.URL)
	requireSigned(deliver(firstKey), map[string]bool{first: true})

	second := rotate(firstKey)
	requireSigned(deliver(firstKey), map[string]bool{first: true, second: true})
	f.exec(day)
	requireSigned(deliver(firstKey), map[string]bool{first: false, second: true})

	requireSigned(deliver(secondKey, firstKey), map[string]bool{second: true})
	third := rotate(secondKey, firstKey)
	both := deliver(secondKey, firstKey)
	requireSigned(both, map[string]bool{first: false, second: true, third: true})
	require.Len(t, strings.Fields(both.header.Get("webhook-signature")), 4)
	f.exec(day)
	requireSigned(deliver(secondKey), map[string]bool{second: false, third: true})

	_, same, err := events.Set(t.Context(), f.pool, events.Keys{secondKey, firstKey}, f.account, endpoint.URL)
	require.NoError(t, err)
	require.Equal(t, third, same)
	require.Len(t, map[string]bool{first: true, second: true, third: true}, 3)
}

// Without the key with which the secret was printed, the shop would reject each signature.
func TestDeliver_unknownKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	endpoint := newShop(t, nil)
	f.set(endpoint.URL)
	f.stagePaid(f.account, 1)
	require.Equal(t, jobs.Result{jobs.Retried: 1}, f.runOnce(f.workers(secondKey)[:1]))
	require.Empty(t, endpoint.received())
	require.Contains(t, f.endpoint().LastError, "EVENTS_SIGNING_KEY_PREVIOUS")
	_, _, err := events.Set(t.Context(), f.pool, events.Keys{secondKey}, f.account, endpoint.URL)
	require.ErrorContains(t, err, "EVENTS_SIGNING_KEY_PREVIOUS")

	f.makeDue()
	require.Equal(t, jobs.Result{events.Sent: 1}, f.runOnce(f.workers(secondKey, firstKey)))
}

// Endpoints of two accounts, and of one account one after the other, have different secrets.
func TestSet_secrets(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	secrets := map[string]bool{f.set("https://shop.example/events"): true}
	require.NoError(t, events.Remove(t.Context(), f.pool, f.account))
	secrets[f.set("https://shop.example/events")] = true
	f.account = f.addAccount()
	secrets[f.set("https://shop.example/events")] = true
	require.Len(t, secrets, 3)
	require.Empty(t, f.strings("SELECT e::text FROM event_endpoints e WHERE e::text LIKE '%whsec%'"))
}
