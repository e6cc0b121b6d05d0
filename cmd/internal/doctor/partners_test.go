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
)

// nobody returns an address where nobody answers.
func nobody(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

// silence returns the address of somebody who listens and says nothing.
func silence(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// newMailServer returns the address of a mail server that takes the password
// "canary" and refuses every mail.
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

type mailSession struct{}

func (mailSession) Reset()        {}
func (mailSession) Logout() error { return nil }
func (mailSession) Mail(string, *smtp.MailOptions) error {
	return errors.New("nobody is to be written to")
}
func (mailSession) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (mailSession) Data(io.Reader) error                 { return nil }
func (mailSession) AuthMechanisms() []string             { return []string{sasl.Plain} }

func (mailSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != "shop" || password != "canary" {
			return errors.New("unknown user or password")
		}
		return nil
	}), nil
}

// someStripe is a provider that answers the same to everybody.
func someStripe(t *testing.T, status int, header map[string]string, body string) string {
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

func TestExamine_partners(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*testing.T, *doctor.Environment)
		about  string
		want   []string // in that line
	}{
		"Stripe does not know the key": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Stripe.APIBase = someStripe(t, 401, stripeVersion("2024-06-20"), wrongKey)
			},
			about: "stripe",
			want:  []string{"✗ ", "status 401", "→ the key is wrong or was rolled: get the present one at https://dashboard.stripe.com/apikeys"},
		},
		"a restricted key may not do it": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Stripe.APIBase = someStripe(t, 403, stripeVersion("2024-06-20"), wrongKey)
			},
			about: "stripe",
			want:  []string{"✗ ", "status 403", "→ let the restricted key write PaymentIntents and Refunds"},
		},
		"something else answers": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Stripe.APIBase = someStripe(t, 200, nil, "<html>It works!</html>")
			},
			about: "stripe",
			want:  []string{"✗ ", "unreadable response", "→ this is not Stripe: correct STRIPE_API_BASE"},
		},
		"nobody answers": {
			change: func(t *testing.T, e *doctor.Environment) { e.Stripe.APIBase = "http://" + nobody(t) },
			about:  "stripe",
			want:   []string{"✗ ", "connection refused", "→ let this machine reach it by HTTPS, or correct STRIPE_API_BASE"},
		},
		"Stripe is down": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Stripe.APIBase = someStripe(t, 503, nil, `{"error":{"type":"api_error","message":"down"}}`)
			},
			about: "stripe",
			want:  []string{"✗ ", "status 503", "→ try again, and see https://status.stripe.com"},
		},
		"another API version": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Stripe.APIBase = someStripe(t, 200, stripeVersion("2020-08-27"), noIntents)
			},
			about: "stripe",
			want:  []string{"! ", `answers in API version "2020-08-27", the program was made for 2024-06-20`},
		},
		"Stripe's clock is ahead": {
			change: func(t *testing.T, e *doctor.Environment) {
				date := time.Now().Add(10 * time.Minute).UTC().Format(http.TimeFormat)
				e.Stripe.APIBase = someStripe(t, 200, map[string]string{"Date": date, "Stripe-Version": "2024-06-20"}, noIntents)
			},
			about: "stripe clock",
			want:  []string{"✗ ", "Stripe's is ", " ahead of this machine's → run a time service"},
		},
		"a live key": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Stripe.APIBase = someStripe(t, 200, stripeVersion("2024-06-20"), noIntents)
				e.Stripe.SecretKey = "sk_live_canary"
			},
			about: "stripe key",
			want:  []string{"! ", "a secret key for LIVE mode: CARDS ARE CHARGED FOR REAL → anywhere but in production, take a test key"},
		},
		"a restricted live key": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Stripe.APIBase = someStripe(t, 200, stripeVersion("2024-06-20"), noIntents)
				e.Stripe.SecretKey = "rk_live_canary"
			},
			about: "stripe key",
			want:  []string{"! ", "a restricted key for LIVE mode", "; see that it may write PaymentIntents and Refunds"},
		},
		"a restricted key": {
			change: func(_ *testing.T, e *doctor.Environment) { e.Stripe.SecretKey = "rk_test_canary" },
			about:  "stripe key",
			want:   []string{"✓ ", "a restricted key for test mode: no real money moves → see that it may write PaymentIntents and Refunds"},
		},
		"a key of an unknown kind": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Stripe.APIBase = someStripe(t, 200, stripeVersion("2024-06-20"), noIntents)
				e.Stripe.SecretKey = "sk_canary_test_"
			},
			about: "stripe key",
			want:  []string{"! ", "names no mode: cards may be charged for real"},
		},
		"no webhook": {
			change: func(_ *testing.T, e *doctor.Environment) { e.Stripe.WebhookSecret = "" },
			about:  "webhook",
			want:   []string{"! ", "STRIPE_WEBHOOK_SECRET is not set", "→ point an endpoint at /v1/webhooks/stripe"},
		},
		"no mail server": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Mail.SMTPURL = boot.Secret("smtp://shop:canary@" + nobody(t))
			},
			about: "mail",
			want:  []string{"✗ ", "connection refused", "→ start the server, let this machine and this user in, or correct SMTP_URL"},
		},
		"the mail server does not know us": {
			change: func(t *testing.T, e *doctor.Environment) {
				e.Mail.SMTPURL = boot.Secret("smtp://shop:canary-wrong@" + newMailServer(t))
			},
			about: "mail",
			want:  []string{"✗ ", "unknown user or password", "→ start the server, let this machine and this user in"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &doctor.Environment{
				Database: boot.Database{URL: boot.Secret("postgres://shop:canary@" + nobody(t) + "/orders")},
				Stripe:   boot.Stripe{SecretKey: "sk_test_canary", WebhookSecret: "whsec_canary"},
			}
			e.Mail.SMTPURL = boot.Secret("smtp://shop:canary@" + newMailServer(t))
			e.Stripe.APIBase = someStripe(t, 200, stripeVersion("2024-06-20"), noIntents)
			test.change(t, e)
			lines := examine(t, e, patient)
			for _, part := range test.want {
				require.Contains(t, lines[test.about], part)
			}
			require.Contains(t, lines["database"], "✗ ", "the others are looked at all the same")
		})
	}
}
