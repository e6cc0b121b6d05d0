package app

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/mail"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"example.com/orders-api/events"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
	"example.com/orders-api/receipts"
)

// Listen is the address of the API.
type Listen struct {
	ListenAddr Address `envconfig:"LISTEN_ADDR" default:":8080"`
}

// Admin is the address of the admin listener.
type Admin struct {
	AdminAddr Address `envconfig:"ADMIN_ADDR" default:"127.0.0.1:8081"`
}

type optionalAdmin struct {
	AdminAddr Address `envconfig:"ADMIN_ADDR"`
}

// Optional returns a without its default address, which the API on the same machine uses.
func (a *Admin) Optional() any { return (*optionalAdmin)(a) }

// Address is host:port, or "".
type Address string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *Address) UnmarshalText(text []byte) error {
	*a = Address(text)
	if *a == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(string(*a))
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return err
}

// Stripe is the access to the payment provider.
type Stripe struct {
	SecretKey     Secret `envconfig:"STRIPE_SECRET_KEY"`
	APIBase       string `envconfig:"STRIPE_API_BASE"`
	WebhookSecret Secret `envconfig:"STRIPE_WEBHOOK_SECRET"`
}

func (s *Stripe) validate(p *problems) {
	validateNetwork(p)
	const source = "get a test key (sk_test_…) at https://dashboard.stripe.com/test/apikeys; playground run needs none"
	p.check(s.SecretKey != "", "STRIPE_SECRET_KEY", "not set; "+source)
	p.check(secretKey.MatchString(string(s.SecretKey)) && !strings.HasPrefix(string(s.SecretKey), "sk_org_"), "STRIPE_SECRET_KEY",
		"is not a secret key, which begins with sk_ or rk_, not with sk_org_, and has only letters, digits and _ (its value is not shown); "+source)
	u := httpURL(s.APIBase)
	p.check(s.APIBase == "" || u != nil && !strings.ContainsAny(s.APIBase, "?#") && !strings.Contains(u.Path, "@"), "STRIPE_API_BASE",
		"is not an http or https URL without a query; leave it empty for Stripe itself")
	p.check(u == nil || u.Scheme == "https" || s.Mode() != "live", "STRIPE_API_BASE", "is plain http, which would expose a live key; use https")
	p.check(s.WebhookSecret == "" || webhookSecret.MatchString(string(s.WebhookSecret)), "STRIPE_WEBHOOK_SECRET",
		"is not a signing secret, which begins with whsec_ (its value is not shown); "+
			"get it from the endpoint's page at https://dashboard.stripe.com/test/webhooks, or leave it empty to turn the webhook off")
}

var (
	secretKey     = regexp.MustCompile(`^[sr]k_\w+$`)
	webhookSecret = regexp.MustCompile(`^whsec_[\w+/=-]+$`)
)

// httpURL returns nil if value is not the URL of a server.
func httpURL(value string) *url.URL {
	u, err := url.Parse(value)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil
	}
	return u
}

// Mode returns test, live or unknown, by the prefix of the key.
func (s *Stripe) Mode() string { return payments.KeyMode(string(s.SecretKey)) }

// ProviderURL returns the provider's URL without credentials and path.
func (s *Stripe) ProviderURL() string {
	base, _ := url.Parse(cmp.Or(s.APIBase, "https://api.stripe.com")) // validated
	return (&url.URL{Scheme: base.Scheme, Host: base.Host}).String()
}

// Mail is how receipts are sent, and by whom. Without SMTP_URL, none are sent (R15, staged receipt).
type Mail struct {
	SMTPURL      Secret `envconfig:"SMTP_URL"`
	SMTPHello    string `envconfig:"SMTP_HELLO"`
	ReceiptsFrom string `envconfig:"RECEIPTS_FROM"`
}

func (m *Mail) validate(p *problems) {
	validateNetwork(p)
	if m.SMTPURL != "" {
		_, err := receipts.NewSMTP(string(m.SMTPURL), m.HelloName(""))
		p.check(err == nil, "SMTP_URL", "%v", err)
		p.check(m.ReceiptsFrom != "", "RECEIPTS_FROM", "not set; expected the sender of the receipts, such as My Shop <orders@example.com>")
	}
	p.check(m.SMTPHello == "" || receipts.ValidAddress("x@"+m.SMTPHello) || addressLiteral.MatchString(m.SMTPHello), "SMTP_HELLO",
		"%q is not a host name with a dot such as shop.example.com, or an address such as [192.0.2.1] or [IPv6:2001:db8::1]", m.SMTPHello)
	from, err := mail.ParseAddress(m.ReceiptsSender())
	p.check(err == nil && receipts.ValidAddress(from.Address), "RECEIPTS_FROM",
		"%q is not a sender such as receipts@example.com or Orders <receipts@example.com>", m.ReceiptsFrom)
}

var addressLiteral = regexp.MustCompile(`^\[(\d{1,3}(\.\d{1,3}){3}|IPv6:[[:xdigit:]]*:[[:xdigit:]:.]*)\]$`) // RFC 5321, 4.1.3

// ReceiptsSender returns RECEIPTS_FROM, or a default for commands that send none.
func (m *Mail) ReceiptsSender() string {
	return cmp.Or(m.ReceiptsFrom, "Orders <receipts@example.com>")
}

// HelloName is the name with which we greet the mail server: SMTP_HELLO, else that of this host,
// else the sender's domain, because servers reject a name without a dot such as that of a pod.
func (m *Mail) HelloName(host string) string {
	if m.SMTPHello == "" && strings.Contains(host, ".") {
		return host
	}
	from, _ := mail.ParseAddress(m.ReceiptsSender())
	if m.SMTPHello == "" && from != nil {
		return from.Address[strings.LastIndexByte(from.Address, '@')+1:]
	}
	return m.SMTPHello
}

// Events is the endpoint of the shop. A process that runs operations needs it, because without it nothing is
// staged.
type Events struct {
	EventsURL    Secret `envconfig:"EVENTS_URL"` // its path may contain a token
	EventsSecret Secret `envconfig:"EVENTS_SECRET"`
}

func (e *Events) validate(p *problems) {
	u := httpURL(string(e.EventsURL))
	p.check(e.EventsURL == "" || u != nil && u.User == nil && u.Fragment == "",
		"EVENTS_URL", "is not an http or https URL without a user and a fragment, such as https://shop.example.com/events (its value is not shown)")
	p.check(e.EventsURL != "" || e.EventsSecret == "", "EVENTS_URL", "not set, but EVENTS_SECRET is")
	if _, err := events.ParseSecrets(string(e.EventsSecret)); e.EventsURL+e.EventsSecret != "" && err != nil {
		p.add("EVENTS_SECRET", "%v", err)
	}
}

// Endpoint returns where events are sent. Its URL is "" if there is none.
func (e *Events) Endpoint() events.Endpoint {
	secrets, _ := events.ParseSecrets(string(e.EventsSecret)) // validated
	return events.Endpoint{URL: string(e.EventsURL), Secrets: secrets, Transport: ProviderTransport()}
}

// shortest is less than a provider needs to answer. longest, about ten years, fits into each interval
// that a statement computes.
const (
	shortest = 100 * time.Millisecond
	longest  = 87600 * time.Hour
)

// Durations are the limits of a key's life. Each must be less than the next one.
type Durations struct {
	StripeTimeout  time.Duration `envconfig:"STRIPE_TIMEOUT" default:"20s"`
	LockTimeout    time.Duration `envconfig:"LOCK_TIMEOUT" default:"90s"`
	CompleterGrace time.Duration `envconfig:"COMPLETER_GRACE" default:"5m"`
	ChargeWindow   time.Duration `envconfig:"CHARGE_WINDOW" default:"23h"`
	KeyRetention   time.Duration `envconfig:"KEY_RETENTION" default:"72h"`
}

// validate rejects durations that are out of order (R9, order of the durations). For example, if a lease
// were shorter than a provider step, another run could take the key over during the call. The retention
// is longer than the charge window, so that a late retry gets the stored response (R24, charge window). A key
// that is abandoned is resumed while its create may still be sent, and an order that was lost and inserted again at
// the end of its window still has a provider key that Stripe remembers (R12, read first).
func (d *Durations) validate(p *problems) {
	type duration struct {
		name    string
		value   time.Duration
		longest time.Duration
	}
	var previous duration
	for _, next := range []duration{
		{"STRIPE_TIMEOUT", d.StripeTimeout, longest},
		{"LOCK_TIMEOUT", d.LockTimeout, longest},
		{"COMPLETER_GRACE", d.CompleterGrace, orders.CreatePeriod - time.Second},
		{"CHARGE_WINDOW", d.ChargeWindow, 23 * time.Hour},
		{"KEY_RETENTION", d.KeyRetention, longest},
	} {
		switch {
		case p.has(next.name):
			continue
		case next.value < shortest || next.value > next.longest:
			p.add(next.name, "%s is not from %s to %s", next.value, shortest, next.longest)
			continue
		case previous.value >= next.value:
			p.lines = append(p.lines, fmt.Sprintf("durations out of order: %s %s must be less than %s %s", previous.name, previous.value, next.name, next.value))
		}
		previous = next
	}
}

// LongestRun bounds a request without a search in the provider's list: three steps, and 15
// seconds for the database.
func (d *Durations) LongestRun() time.Duration { return 3*d.StripeTimeout + 15*time.Second }

// Log configures the log.
type Log struct {
	Level  slog.Level `envconfig:"LOG_LEVEL" default:"info"`
	Format string     `envconfig:"LOG_FORMAT" default:"text"`
}

func (l *Log) validate(p *problems) {
	p.check(l.Format == "text" || l.Format == "json", "LOG_FORMAT", "%q is neither text nor json", l.Format)
}

// Config has all variables. A command loads the groups that it needs.
type Config struct {
	Database
	Listen
	Admin
	Stripe
	Mail
	Events
	Durations
	Log
}

// All returns the groups of all commands together.
func (c *Config) All() []any {
	return []any{&c.Database, &c.Listen, &c.Admin, &c.Stripe, &c.Mail, &c.Events, &c.Durations, &c.Log}
}

// Keys returns the groups of commands that read or delete keys.
func (c *Config) Keys() []any { return []any{&c.Database, &c.Log, &c.Durations} }

// Operations returns the groups of commands that run operations.
func (c *Config) Operations() []any { return append(c.Keys(), &c.Stripe, &c.Events) }

// Secret is a value that only a conversion to string shows.
type Secret string

const redacted = "[redacted]"

// Format hides the value from all verbs.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText hides the value from encoding/json and slog.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
