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

const webhookSecret = "whsec_" + canary

func webhookClient(t *testing.T) *payments.Client {
	t.Helper()
	return newClient(t, "", func(cfg *payments.Config) { cfg.WebhookSecret = webhookSecret })
}

func TestEvent_subject(t *testing.T) {
	t.Parallel()
	metadata := map[string]string{"order_id": "7b0f"}
	for name, test := range map[string]struct {
		object   map[string]any
		intentID string
		metadata map[string]string
		refundID string
	}{
		"about an intent":                  {map[string]any{"object": "payment_intent", "id": "pi_1", "status": "succeeded", "metadata": metadata}, "pi_1", metadata, ""},
		"about an intent without metadata": {map[string]any{"object": "payment_intent", "id": "pi_1", "metadata": map[string]string{}}, "pi_1", map[string]string{}, ""},
		"about a charge":                   {map[string]any{"object": "charge", "id": "ch_1", "payment_intent": "pi_1", "metadata": metadata}, "pi_1", metadata, ""},
		"about a charge without an intent": {map[string]any{"object": "charge", "id": "ch_1", "payment_intent": nil, "metadata": metadata}, "", metadata, ""},
		"about a refund":                   {map[string]any{"object": "refund", "id": "re_1", "payment_intent": "pi_1", "metadata": metadata}, "pi_1", metadata, "re_1"},
		"about a dispute":                  {map[string]any{"object": "dispute", "id": "dp_1", "payment_intent": "pi_1", "metadata": metadata}, "", nil, ""},
		"with members of other types":      {map[string]any{"object": "payment_intent", "id": 1, "metadata": metadata}, "", nil, ""},
		"about an empty object":            {map[string]any{}, "", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			payload, signature := stripetest.SignedEvent(webhookSecret, "some.type", test.object, time.Now())
			got, err := webhookClient(t).Event(payload, signature)
			require.NoError(t, err)
			require.Regexp(t, "^evt_", got.ID)
			require.Equal(t, payments.Event{ID: got.ID, Type: "some.type", IntentID: test.intentID, RefundID: test.refundID, Metadata: test.metadata}, got)
		})
	}
}

// The signatures use the right secret unless the name says otherwise.
func TestEvent_signatures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		payload, genuine := stripetest.SignedEvent(webhookSecret, "payment_intent.succeeded", map[string]any{"object": "payment_intent", "id": "pi_1"}, now)
		at := func(shift time.Duration) string {
			then := now.Add(shift)
			return fmt.Sprintf("t=%d,v1=%s", then.Unix(), stripetest.Sign(webhookSecret, payload, then))
		}
		signed := stripetest.Sign(webhookSecret, payload, now)
		forged := stripetest.Sign("whsec_another", payload, now)
		with := func(format string, arguments ...any) string {
			return fmt.Sprintf("t=%d,", now.Unix()) + fmt.Sprintf(format, arguments...)
		}
		changed := bytes.Replace(payload, []byte("pi_1"), []byte("pi_2"), 1)
		big := bytes.Repeat([]byte(" "), 1<<20)

		client := webhookClient(t)
		for name, test := range map[string]struct {
			payload   []byte
			signature string
			genuine   bool
		}{
			"valid":                          {payload, genuine, true},
			"300 seconds old":                {payload, at(-300 * time.Second), true},
			"301 seconds old":                {payload, at(-301 * time.Second), false},
			"299 seconds ahead":              {payload, at(299 * time.Second), true},
			"301 seconds ahead":              {payload, at(301 * time.Second), false},
			"a century ahead":                {payload, at(876_000 * time.Hour), false},
			"from before 1970":               {payload, at(-876_000 * time.Hour), false},
			"secret rolled, last valid":      {payload, with("v1=%s,v1=%s", forged, signed), true},
			"secret rolled, first valid":     {payload, with("v1=%s,v1=%s", signed, forged), true},
			"with an unknown scheme":         {payload, with("v1=%s,v2=x", signed), true},
			"two signatures, both wrong":     {payload, with("v1=%s,v1=%s", forged, forged), false},
			"another endpoint's secret":      {payload, with("v1=%s", forged), false},
			"no header":                      {payload, "", false},
			"no v1":                          {payload, with("x=%s", signed), false},
			"v0 only":                        {payload, with("v0=%s", signed), false},
			"no time":                        {payload, "v1=" + signed, false},
			"time only":                      {payload, fmt.Sprintf("t=%d", now.Unix()), false},
			"t not a number":                 {payload, "t=now,v1=" + signed, false},
			"t out of range":                 {payload, "t=9223372036854775807,v1=" + signed, false},
			"two times, of which one is old": {payload, with("v1=%s,t=%d", signed, now.Unix()-301), false},
			"half a signature":               {payload, with("v1=%s", signed[:32]), false},
			"an empty signature":             {payload, with("v1="), false},
			"not hexadecimal":                {payload, with("v1=%s", strings.Repeat("x", 64)), false},
			"15 KiB of signatures":           {payload, with("v1=%s", strings.Repeat(forged+",v1=", 220)+forged), false},
			"one byte changed":               {changed, genuine, false},
			"one byte more":                  {append(bytes.Clone(payload), '\n'), genuine, false},
			"re-encoded":                     {bytes.ReplaceAll(payload, []byte("\n"), nil), genuine, false},
			"no payload":                     {nil, genuine, false},
			"1 MiB":                          {big, genuine, false},
			"signature of another payload":   {[]byte("{}"), genuine, false},
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
	})
}

func TestEvent_invalidPayload(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		"", canary, "null", "1", `"evt_1"`, "[]", "{}", `{"id":"evt_1"}`,
		`{"id":"evt_1","object":"event","type":"x","data":{}}`,
		`{"id":"evt_1","object":"event","type":"x","data":{"object":"` + canary + `"}}`,
		`{"id":"","object":"event","type":"x","data":{"object":{}}}`,
		`{"id":"evt_1","object":"event","type":"","data":{"object":{}}}`,
		`{"id":"evt_1","object":"charge","type":"x","data":{"object":{}}}`,
		`{"id":"evt_1","object":"event","type":"x","data":{"object":{}}} x`,
		`{"id":"evt_1","object":"event","type":"x","data":{"object":{"amount":1E400}}}`,
	} {
		now := time.Now()
		event, err := webhookClient(t).Event([]byte(payload), fmt.Sprintf("t=%d,v1=%s", now.Unix(), stripetest.Sign(webhookSecret, []byte(payload), now)))
		require.Equal(t, payments.ErrInvalidEvent, err, payload)
		require.Empty(t, event)
	}
}

func TestEvent_thin(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		`{"id":"evt_1","object":"v2.core.event","type":"v1.payment_intent.succeeded","created":"2026-09-29T01:38:41.385Z","livemode":false,` +
			`"related_object":{"id":"pi_1","type":"payment_intent","url":"/v1/payment_intents/pi_1"}}`,
		`{"id":"evt_1","object":"v2.core.event","type":"x","data":{"object":{"object":"payment_intent","id":"pi_1"}}}`,
		`{"id":"evt_1","object":"event","type":"x"}`,
		`{"id":"evt_1","object":"event","type":"x","data":{"object":null}}`,
	} {
		now := time.Now()
		event, err := webhookClient(t).Event([]byte(payload), fmt.Sprintf("t=%d,v1=%s", now.Unix(), stripetest.Sign(webhookSecret, []byte(payload), now)))
		require.Equal(t, payments.ErrThinEvent, err, payload)
		require.Empty(t, event)
	}
}

func TestEvent_off(t *testing.T) {
	t.Parallel()
	payload, signature := stripetest.SignedEvent("", "payment_intent.succeeded", map[string]any{"object": "payment_intent"}, time.Now())
	event, err := newClient(t, "").Event(payload, signature)
	require.Equal(t, payments.ErrWebhooksOff, err)
	require.Empty(t, event)
}

// FuzzEvent checks that an unsigned payload is rejected, and that a signed one is an
// error or an event with id and type.
func FuzzEvent(f *testing.F) {
	payload, signature := stripetest.SignedEvent("whsec_another", "charge.succeeded", map[string]any{"object": "charge"}, time.Now())
	f.Add(payload, signature)
	f.Add([]byte(`{"id":"evt_1","object":"event","type":"x","data":{"object":{"object":"charge","payment_intent":{"id":"pi_1"}}}}`), "t=1,v1=00")
	f.Fuzz(func(t *testing.T, payload []byte, signature string) {
		client := webhookClient(t)
		_, err := client.Event(payload, signature)
		require.Equal(t, payments.ErrSignature, err)

		now := time.Now()
		event, err := client.Event(payload, fmt.Sprintf("t=%d,v1=%s", now.Unix(), stripetest.Sign(webhookSecret, payload, now)))
		if err != nil {
			require.Contains(t, []error{payments.ErrInvalidEvent, payments.ErrThinEvent}, err)
			return
		}
		require.NotEmpty(t, event.ID)
		require.NotEmpty(t, event.Type)
	})
}
