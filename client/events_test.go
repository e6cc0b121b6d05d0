package client_test

import (
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"example.com/orders-api/client"
)

// vector is a request whose signature is known.
type vector struct {
	secret, id, body, signature string
	sent                        int64
}

// published is a vector for implementations of Standard Webhooks.
var published = vector{
	secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", id: "msg_p5jXN8AQM9LWM0D4loKWxJek", sent: 1614265330,
	body: `{"test": 2432232314}`, signature: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}

const otherSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

func (v vector) header() http.Header {
	return http.Header{
		"Webhook-Id": {v.id}, "Webhook-Timestamp": {strconv.FormatInt(v.sent, 10)}, "Webhook-Signature": {v.signature},
	}
}

func (v vector) verify(secrets ...string) (client.Event, error) {
	return client.VerifyEvent(secrets, v.header(), []byte(v.body), time.Unix(v.sent, 0))
}

// The contract has a signature with its secret, headers and body.
func TestVerifyEvent_contract(t *testing.T) {
	t.Parallel()
	var contract struct {
		Components struct {
			Parameters map[string]struct{ Description, Example string }
		}
	}
	text, err := os.ReadFile("../openapi.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &contract))
	header := contract.Components.Parameters
	sent := regexp.MustCompile("(?s)`(whsec_[^`]+)`.*\n    (\\{.*\\})\n").FindStringSubmatch(header["WebhookSignature"].Description)
	require.NotNil(t, sent)
	seconds, err := strconv.ParseInt(header["WebhookTimestamp"].Example, 10, 64)
	require.NoError(t, err)
	shown := vector{secret: sent[1], id: header["WebhookId"].Example, sent: seconds, body: sent[2], signature: header["WebhookSignature"].Example}
	event, err := shown.verify(shown.secret)
	require.NoError(t, err)
	require.Equal(t, []string{shown.id, "order.paid"}, []string{event.ID, event.Type})
	require.NotZero(t, event.Timestamp)
	require.NotEmpty(t, event.AccountID)
	require.NotEmpty(t, event.Data.OrderID)
}

// During a rotation, both sides may have two secrets.
func TestVerifyEvent_rotation(t *testing.T) {
	t.Parallel()
	event, err := published.verify(otherSecret, published.secret)
	require.NoError(t, err, "the shop has two secrets")
	require.Equal(t, client.Event{ID: published.id}, event)
	two := published
	two.signature = "v1a,unknown v1,AAAA " + published.signature + " v1,BBBB"
	_, err = two.verify(published.secret)
	require.NoError(t, err, "the API signs with two secrets")
}

func TestVerifyEvent_rejected(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*vector, http.Header){
		"other secret":              func(v *vector, _ http.Header) { v.secret = otherSecret },
		"other body":                func(v *vector, _ http.Header) { v.body = strings.Replace(v.body, " ", "", 1) },
		"other id":                  func(_ *vector, h http.Header) { h.Set("webhook-id", "msg_2") },
		"later time":                func(v *vector, h http.Header) { h.Set("webhook-timestamp", strconv.FormatInt(v.sent+1, 10)) },
		"no signature":              func(_ *vector, h http.Header) { h.Del("webhook-signature") },
		"other scheme":              func(v *vector, h http.Header) { h.Set("webhook-signature", "v2,"+v.signature[3:]) },
		"no time":                   func(_ *vector, h http.Header) { h.Del("webhook-timestamp") },
		"time that is not a number": func(_ *vector, h http.Header) { h.Set("webhook-timestamp", "now") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := published
			header := v.header()
			change(&v, header)
			event, err := client.VerifyEvent([]string{v.secret}, header, []byte(v.body), time.Unix(v.sent, 0))
			require.ErrorIs(t, err, client.ErrEventRejected)
			require.Zero(t, event)
		})
	}
	_, err := published.verify()
	require.ErrorIs(t, err, client.ErrEventRejected, "no secret")
	_, err = published.verify("whsec_CANARY!")
	require.EqualError(t, err, "client: a signing secret is not in base64")
}

func TestVerifyEvent_time(t *testing.T) {
	t.Parallel()
	for difference, ok := range map[time.Duration]bool{
		5 * time.Minute: true, -5 * time.Minute: true,
		5*time.Minute + time.Second: false, -5*time.Minute - time.Second: false, 100 * 365 * 24 * time.Hour: false,
	} {
		now := time.Unix(published.sent, 0).Add(difference)
		_, err := client.VerifyEvent([]string{published.secret}, published.header(), []byte(published.body), now)
		require.Equal(t, ok, err == nil, "%v: %v", difference, err)
	}
	far := published
	far.sent = 1 << 62
	_, err := client.VerifyEvent([]string{far.secret}, far.header(), []byte(far.body), time.Unix(0, 0))
	require.ErrorIs(t, err, client.ErrEventRejected)
}
