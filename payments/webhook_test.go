package payments_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

func webhookClient(t *testing.T) *payments.Client {
	t.Helper()
	return newClient(t, nil, func(cfg *payments.Config) { cfg.WebhookSecret = webhookSecret })
}

func TestEvent_subject(t *testing.T) {
	t.Parallel()
	metadata := map[string]string{"order_id": "7b0f"}
	for name, test := range map[string]struct {
		object map[string]any
		want   payments.ProviderEvent
	}{
		"an intent":                   {map[string]any{"object": "payment_intent", "id": "pi_1", "metadata": metadata}, payments.ProviderEvent{IntentID: "pi_1", NamesIntent: true, Metadata: metadata}},
		"a charge":                    {map[string]any{"object": "charge", "id": "ch_1", "payment_intent": "pi_1", "metadata": metadata}, payments.ProviderEvent{ObjectID: "ch_1", IntentID: "pi_1", NamesIntent: true, Metadata: metadata}},
		"a charge without an intent":  {map[string]any{"object": "charge", "id": "ch_1", "payment_intent": nil}, payments.ProviderEvent{ObjectID: "ch_1", NamesIntent: true}},
		"a charge of an old version":  {map[string]any{"object": "charge", "id": "ch_1"}, payments.ProviderEvent{ObjectID: "ch_1"}},
		"an intent that is no id":     {map[string]any{"object": "charge", "id": "ch_1", "payment_intent": "\x00"}, payments.ProviderEvent{ObjectID: "ch_1", IntentID: "\x00"}},
		"a refund":                    {map[string]any{"object": "refund", "id": "re_1", "payment_intent": "pi_1", "metadata": metadata}, payments.ProviderEvent{ObjectID: "re_1", IntentID: "pi_1", NamesIntent: true, Metadata: metadata}},
		"a dispute":                   {map[string]any{"object": "dispute", "id": "dp_1", "payment_intent": "pi_1", "metadata": metadata}, payments.ProviderEvent{ObjectID: "dp_1", IntentID: "pi_1", NamesIntent: true, Metadata: metadata}},
		"another object":              {map[string]any{"object": "customer", "id": "cus_1", "metadata": metadata}, payments.ProviderEvent{}},
		"with members of other types": {map[string]any{"object": "payment_intent", "id": 1, "metadata": metadata}, payments.ProviderEvent{}},
	} {
		payload, signature := stripetest.SignedEvent(webhookSecret, "some.type", test.object, time.Now())
		got, err := webhookClient(t).Event(payload, signature)
		require.NoError(t, err)
		require.Regexp(t, "^evt_", got.ID)
		test.want.ID, test.want.Type = got.ID, "some.type"
		require.Equal(t, test.want, got, name)
	}
}

func signed(payload []byte, at time.Time) string {
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), stripetest.Sign(webhookSecret, payload, at))
}

func TestEvent_signatures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		payload, genuine := stripetest.SignedEvent(webhookSecret, "payment_intent.succeeded", map[string]any{"object": "payment_intent", "id": "pi_1"}, now)
		at := func(shift time.Duration) string { return signed(payload, now.Add(shift)) }
		forged := stripetest.Sign("whsec_another", payload, now)
		changed := bytes.Replace(payload, []byte("pi_1"), []byte("pi_2"), 1)
		client := webhookClient(t)
		for name, test := range map[string]struct {
			payload   []byte
			signature string
			genuine   bool
		}{
			"valid":                    {payload, genuine, true},
			"300 seconds old":          {payload, at(-300 * time.Second), true},
			"301 seconds old":          {payload, at(-301 * time.Second), false},
			"299 seconds ahead":        {payload, at(299 * time.Second), true},
			"301 seconds ahead":        {payload, at(301 * time.Second), false},
			"a century ahead":          {payload, at(876_000 * time.Hour), false},
			"one of two, as in a roll": {payload, genuine + ",v1=" + forged, true},
			"another secret":           {payload, fmt.Sprintf("t=%d,v1=%s", now.Unix(), forged), false},
			"no header":                {payload, "", false},
			"v0 only":                  {payload, strings.Replace(genuine, "v1", "v0", 1), false},
			"one byte changed":         {changed, genuine, false},
			"re-encoded":               {bytes.ReplaceAll(payload, []byte("\n"), nil), genuine, false},
			"no payload":               {nil, genuine, false},
		} {
			event, err := client.Event(test.payload, test.signature)
			if test.genuine {
				require.NoError(t, err, name)
				require.Equal(t, "pi_1", event.IntentID, name)
				continue
			}
			require.Equal(t, payments.ErrSignature, err, "%s: the error must not quote the payload", name)
			require.Empty(t, event, name)
		}

		event, err := newClient(t, nil).Event(payload, genuine)
		require.Equal(t, payments.ErrWebhooksOff, err)
		require.Empty(t, event)
	})
}

func TestEvent_withoutObject(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]error{
		"": payments.ErrInvalidEvent, canary: payments.ErrInvalidEvent, "null": payments.ErrInvalidEvent, `"evt_1"`: payments.ErrInvalidEvent,
		"[]": payments.ErrInvalidEvent, "{}": payments.ErrInvalidEvent, `{"id":"evt_1"}`: payments.ErrInvalidEvent,
		`{"id":"evt_1","object":"event","type":"x","data":{"object":"text"}}`:           payments.ErrInvalidEvent,
		`{"id":"","object":"event","type":"x","data":{"object":{}}}`:                    payments.ErrInvalidEvent,
		`{"id":"\u0000","object":"event","type":"x","data":{"object":{}}}`:              payments.ErrInvalidEvent,
		`{"id":"evt_1","object":"event","type":"","data":{"object":{}}}`:                payments.ErrInvalidEvent,
		`{"id":"evt_1","object":"charge","type":"x","data":{"object":{}}}`:              payments.ErrInvalidEvent,
		`{"id":"evt_1","object":"event","type":"x","data":{"object":{}}} x`:             payments.ErrInvalidEvent,
		`{"id":"evt_1","object":"v2.core.event","type":"x","created":"2026-09-29"}`:     payments.ErrInvalidEvent,
		`{"id":"evt_1","object":"v2.core.event","type":"x","data":{"object":{"id":1}}}`: payments.ErrInvalidEvent,
		`{"id":"evt_1","object":"event","type":"x"}`:                                    payments.ErrInvalidEvent,
		`{"id":"evt_1","object":"event","type":"x","data":{}}`:                          payments.ErrInvalidEvent,
		`{"id":"evt_1","object":"event","type":"x","data":{"object":null}}`:             payments.ErrInvalidEvent,
	} {
		_, err := webhookClient(t).Event([]byte(payload), signed([]byte(payload), time.Now()))
		require.Equal(t, want, err, payload)
	}
}
