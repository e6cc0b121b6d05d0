package doctor_test

import (
	"cmp"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/cmd/internal/setup"
)

func unusedAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

// providerEnvironment has a provider, but neither a database nor a mail server.
func providerEnvironment(t *testing.T, provider http.Handler) *setup.All {
	t.Helper()
	server := httptest.NewServer(provider)
	t.Cleanup(server.Close)
	return &setup.All{
		Database: setup.Database{URL: setup.Secret("postgres://tester:canary@" + unusedAddress(t) + "/orders")},
		Stripe:   setup.Stripe{SecretKey: "sk_test_canary", APIBase: server.URL},
		Mail:     setup.Mail{SMTPURL: setup.Secret("smtp://tester:canary@" + unusedAddress(t))},
	}
}

func TestRun_provider(t *testing.T) {
	t.Parallel()
	const noIntents = `{"object":"list","url":"/v1/payment_intents","has_more":false,"data":[]}`
	const wrongKey = `{"error":{"type":"invalid_request_error","message":"Invalid API Key provided: sk_test_canary"}}`
	for name, test := range map[string]struct {
		status int    // of every response; 0: 200
		body   string // "": an empty list
		check  string
		want   []string
	}{
		"unknown key": {
			status: 401, body: wrongKey, check: "stripe",
			want: []string{"✗ ", "status 401", "→ the key is wrong or was rolled: get the current one at https://dashboard.stripe.com/apikeys"},
		},
		"another web server": {
			body: "<html>It works!</html>", check: "stripe",
			want: []string{"✗ ", "unreadable response", "→ allow HTTPS from this machine to it, correct STRIPE_API_BASE"},
		},
		"Stripe is down": {
			status: 503, body: `{"error":{"type":"api_error","message":"down"}}`, check: "stripe",
			want: []string{"✗ ", "status 503", "or see https://status.stripe.com"},
		},
		"no mail server": {
			check: "mail",
			want:  []string{"✗ ", "connection refused", "→ start the server, grant access to this machine and user, or correct SMTP_URL"},
		},
		"no database": {
			check: "database",
			want:  []string{"✗ ", "connection refused", "→ start the server, grant access to this machine and role, or correct DATABASE_URL"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := providerEnvironment(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(cmp.Or(test.status, http.StatusOK))
				_, _ = io.WriteString(w, cmp.Or(test.body, noIntents))
			}))
			lines := check(t, e, longTimeout)
			for _, part := range test.want {
				require.Contains(t, lines[test.check], part)
			}
		})
	}
}

func TestRun_unresponsiveDependencies(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	silent := listener.Addr().String()
	e := providerEnvironment(t, http.NotFoundHandler())
	e.Database.URL = setup.Secret("postgres://tester:canary@" + silent + "/orders?sslmode=disable")
	e.Stripe.APIBase = "http://" + silent
	e.Mail.SMTPURL = setup.Secret("smtp://tester:canary@" + silent)
	begin := time.Now()
	lines := check(t, e, 300*time.Millisecond)
	require.Less(t, time.Since(begin), longTimeout/2)
	for _, name := range []string{"database", "stripe", "mail"} {
		require.Contains(t, lines[name], "✗ ", name)
	}
}
