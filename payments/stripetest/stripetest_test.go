package stripetest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/payments/stripetest"
)

const (
	intentsPath = "/v1/payment_intents"

	// unconfirmed is what the orders API sends. The others confirm in the same request.
	unconfirmed = "amount=2000&currency=usd&payment_method=pm_card_visa&metadata[order_id]=order-1" +
		"&automatic_payment_methods[enabled]=true&automatic_payment_methods[allow_redirects]=never"
	visa    = unconfirmed + "&confirm=true&off_session=true"
	decline = newCard + "pm_card_visa_chargeDeclined"

	newCard = "amount=2000&currency=usd&payment_method_types[0]=card&confirm=true&payment_method="
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// A fake is a Server with a client that opens a connection per request, so that net/http
// never sends one twice.
type fake struct {
	*stripetest.Server
	t      *testing.T
	url    string
	client *http.Client
}

func start(t *testing.T, opts stripetest.Options) *fake {
	t.Helper()
	s := stripetest.New(opts)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(s.Close)
	return &fake{
		Server: s,
		t:      t,
		url:    server.URL,
		client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}},
	}
}

type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

func (r reply) field(path string) string {
	var value any
	if json.Unmarshal([]byte(r.body), &value) != nil {
		return ""
	}
	for name := range strings.SplitSeq(path, ".") {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	switch v := value.(type) {
	case nil:
		return ""
	case float64:
		return fmt.Sprintf("%.0f", v)
	default:
		return fmt.Sprint(v)
	}
}

func (s *fake) post(path, key, form string) reply {
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	return s.send(http.MethodPost, path, form, header)
}

func (s *fake) get(path string) reply {
	return s.send(http.MethodGet, path, "", http.Header{})
}

func (s *fake) send(method, path, body string, header http.Header) reply {
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	r.Header = header
	if r.Header.Get("Authorization") == "" {
		r.Header.Set("Authorization", "Bearer sk_test_fake")
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{status: resp.StatusCode, header: resp.Header, body: string(text), err: err}
}

// executions counts the executed requests with a key, because net/http may send one twice.
func (s *fake) executions(key string) int {
	n := 0
	for _, r := range s.Requests() {
		if r.Key == key && r.Executed {
			n++
		}
	}
	return n
}

func (s *fake) create(form string) string {
	s.t.Helper()
	r := s.post(intentsPath, "", form)
	require.Equal(s.t, http.StatusOK, r.status, r.body)
	return r.field("id")
}

func (s *fake) background(path, key, form string) <-chan reply {
	replies := make(chan reply, 1)
	go func() { replies <- s.post(path, key, form) }()
	return replies
}

func reached(t *testing.T, i *stripetest.Injection) {
	t.Helper()
	select {
	case <-i.Reached():
	case <-time.After(10 * time.Second):
		require.Fail(t, "the fault was not triggered")
	}
}

func requireError(t *testing.T, r reply, status int, code, param string) {
	t.Helper()
	require.NoError(t, r.err)
	require.Equal(t, status, r.status, r.body)
	require.Equal(t, code, r.field("error.code"), r.body)
	require.Equal(t, param, r.field("error.param"), r.body)
}
