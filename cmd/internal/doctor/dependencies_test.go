package doctor_test

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/cmd/internal/doctor"
	"example.com/orders-api/payments/stripetest"
)

// unusedAddress returns an address where no program listens.
func unusedAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

// silentServer returns the address of a server that accepts connections and never
// responds.
func silentServer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// newMailServer returns the address of a mail server that accepts the password
// "canary" and rejects every mail.
func newMailServer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return mailSession{}, nil }))
	server.AllowInsecureAuth = true // loopback
	server.ErrorLog = log.New(io.Discard, "", 0)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		require.NoError(t, <-done)
	})
	return listener.Addr().String()
}

// restrictKey replaces the provider by one at which the key has only these permissions.
func restrictKey(permissions ...string) func(*testing.T, *doctor.Environment) {
	return func(t *testing.T, e *doctor.Environment) {
		t.Helper()
		stripe := stripetest.New(stripetest.Options{})
		server := httptest.NewServer(stripe)
		t.Cleanup(server.Close)
		e.Stripe.SecretKey, e.Stripe.APIBase = "rk_test_canary", server.URL
		stripe.Restrict(string(e.Stripe.SecretKey), permissions...)
	}
}

type mailSession struct{}

func (mailSession) Reset()        {}
func (mailSession) Logout() error { return nil }
func (mailSession) Mail(string, *smtp.MailOptions) error {
	return errors.New("no mail is accepted")
}
func (mailSession) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (mailSession) Data(io.Reader) error                 { return nil }
func (mailSession) AuthMechanisms() []string             { return []string{sasl.Plain} }

func (mailSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != "tester" || password != "canary" {
			return errors.New("unknown user or password")
		}
		return nil
	}), nil
}

// fixedProvider returns the URL of a provider with one response to every request.
func fixedProvider(t *testing.T, status int, header map[string]string, body string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

const (
	noIntents = `{"object":"list","url":"/v1/payment_intents","has_more":false,"data":[]}`
	wrongKey  = `{"error":{"type":"invalid_request_error","message":"Invalid API Key provided: sk_test_canary"}}`
)

func stripeVersion(version string) map[string]string {
	return map[string]string{"Stripe-Version": version}
}

func TestRun_dependencies(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*testing.T, *doctor.Environment)
		check  string
		want   []string // in that line
	}{
		"unknown key": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Stripe.APIBase = fixedProvider(t, 401, stripeVersion("2024-06-20"), wrongKey)
			},
			check: "stripe",
			want:  []string{"✗ ", "status 401", "→ the key is wrong or was rolled: get the current one at https://dashboard.stripe.com/apikeys"},
		},
		"restricted key without permission": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Stripe.APIBase = fixedProvider(t, 403, stripeVersion("2024-06-20"), wrongKey)
			},
			check: "stripe",
			want:  []string{"✗ ", "status 403", "→ let the key write PaymentIntents and Refunds"},
		},
		"another web server": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Stripe.APIBase = fixedProvider(t, 200, nil, "<html>It works!</html>")
			},
			check: "stripe",
			want:  []string{"✗ ", "unreadable response", "→ this is not Stripe: correct STRIPE_API_BASE"},
		},
		"connection refused": {
			change: func(t *testing.T, e *doctor.Environment) { e.Stripe.APIBase = "http://" + unusedAddress(t) },
			check:  "stripe",
			want:   []string{"✗ ", "connection refused", "→ allow HTTPS from this machine to it, or correct STRIPE_API_BASE"},
		},
		"Stripe is down": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Stripe.APIBase = fixedProvider(t, 503, nil, `{"error":{"type":"api_error","message":"down"}}`)
			},
			check: "stripe",
			want:  []string{"✗ ", "status 503", "→ try again, and see https://status.stripe.com"},
		},
		"another API version": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Stripe.APIBase = fixedProvider(t, 200, stripeVersion("2020-08-27"), noIntents)
			},
			check: "stripe",
			want:  []string{"! ", `responds in API version "2020-08-27" instead of 2024-06-20`},
		},
		"Stripe's clock is ahead": {
			change: func(t *testing.T, e *doctor.Environment) {
				date := time.Now().Add(10 * time.Minute).UTC().Format(http.TimeFormat)
				e.Stripe.APIBase = fixedProvider(t, 200, map[string]string{"Date": date, "Stripe-Version": "2024-06-20"}, noIntents)
			},
			check: "stripe clock",
			want:  []string{"✗ ", "Stripe's clock is ", " ahead of this machine's → run a time service"},
		},
		"a live key": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Stripe.APIBase = fixedProvider(t, 200, stripeVersion("2024-06-20"), noIntents)
				e.Stripe.SecretKey = "sk_live_canary"
			},
			check: "stripe key",
			want:  []string{"! ", " secret key for LIVE mode: CARDS ARE CHARGED FOR REAL → outside production, use a test key"},
		},
		"a restricted live key": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Stripe.APIBase = fixedProvider(t, 200, stripeVersion("2024-06-20"), noIntents)
				e.Stripe.SecretKey = "rk_live_canary"
			},
			check: "stripe key",
			want:  []string{"! ", " restricted key for LIVE mode"},
		},
		"a restricted key": {
			change: func(_ *testing.T, e *doctor.Environment) { e.Stripe.SecretKey = "rk_test_canary" },
			check:  "stripe key",
			want:   []string{"✓ ", " restricted key for test mode: no real money moves"},
		},
		"a restricted key with all permissions": {
			change: restrictKey("payment_intents:write", "refunds:write"),
			check:  "stripe",
			want:   []string{"✓ ", "accepts the key"},
		},
		"a restricted key that may only read": {
			change: restrictKey("payment_intents:read", "refunds:read"),
			check:  "stripe",
			want:   []string{"✗ ", "the restricted key lacks permissions: PaymentIntents: Write, Refunds: Write → grant them at https://dashboard.stripe.com/apikeys"},
		},
		"a restricted key without any permission": {
			change: restrictKey(),
			check:  "stripe",
			want:   []string{"✗ ", "lacks permissions: PaymentIntents: Read, PaymentIntents: Write, Refunds: Read, Refunds: Write"},
		},
		"a key of an unknown kind": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Stripe.APIBase = fixedProvider(t, 200, stripeVersion("2024-06-20"), noIntents)
				e.Stripe.SecretKey = "sk_canary_test_"
			},
			check: "stripe key",
			want:  []string{"! ", "key without a mode: cards may be charged for real"},
		},
		"no webhook": {
			change: func(_ *testing.T, e *doctor.Environment) { e.Stripe.WebhookSecret = "" },
			check:  "webhook",
			want:   []string{"! ", "STRIPE_WEBHOOK_SECRET is not set", "→ create an endpoint for snapshot events at /v1/webhooks/stripe"},
		},
		"no mail server": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Mail.SMTPURL = boot.Secret("smtp://tester:canary@" + unusedAddress(t))
			},
			check: "mail",
			want:  []string{"✗ ", "connection refused", "→ start the server, grant access to this machine and user, or correct SMTP_URL"},
		},
		"a wrong mail password": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Mail.SMTPURL = boot.Secret("smtp://tester:canary-wrong@" + newMailServer(t))
			},
			check: "mail",
			want:  []string{"✗ ", "unknown user or password", "→ start the server, grant access to this machine and user"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &doctor.Environment{
				Database: boot.Database{URL: boot.Secret("postgres://tester:canary@" + unusedAddress(t) + "/orders")},
				Stripe:   boot.Stripe{SecretKey: "sk_test_canary", WebhookSecret: "whsec_canary"},
			}
			e.Mail.SMTPURL = boot.Secret("smtp://tester:canary@" + newMailServer(t))
			e.Stripe.APIBase = fixedProvider(t, 200, stripeVersion("2024-06-20"), noIntents)
			test.change(t, e)
			lines := check(t, e, longTimeout)
			for _, part := range test.want {
				require.Contains(t, lines[test.check], part)
			}
			require.Contains(t, lines["database"], "✗ ", "the other checks run")
		})
	}
}
