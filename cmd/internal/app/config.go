package app

import (
	"cmp"
	"crypto/x509"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/mail"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"

	"example.com/orders-api/events"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
	"example.com/orders-api/receipts"
)

// Variables describes all variables of the environment.
//
//go:embed env.txt
var Variables string

// Config has all variables.
type Config struct {
	Database
	Stripe
	Mail
	Events
	Durations

	ListenAddr string     `envconfig:"LISTEN_ADDR" default:":8080"`
	AdminAddr  string     `envconfig:"ADMIN_ADDR" default:"127.0.0.1:8081"`
	LogLevel   slog.Level `envconfig:"LOG_LEVEL" default:"info"`
	LogFormat  string     `envconfig:"LOG_FORMAT" default:"text"`
}

// Load reads and checks all variables, of which some are required. The error names every invalid variable,
// and contains no secret. Space around a value is removed, because files such as Kubernetes secrets end
// with a line break. An empty variable counts as not set, except that it turns the admin listener off.
func Load(required ...string) (*Config, error) {
	p := new(problems)
	for name, instead := range former {
		p.check(os.Getenv(name) == "", name, "%s", instead)
	}
	for _, match := range variableName.FindAllStringSubmatch(Variables, -1) {
		name := match[1]
		value, set := os.LookupEnv(name)
		if value = strings.TrimSpace(value); value == "" && name != "ADMIN_ADDR" {
			_ = os.Unsetenv(name) // envconfig would not use the default
		} else if set {
			_ = os.Setenv(name, value)
		}
	}
	for _, name := range required {
		p.check(os.Getenv(name) != "", name, "not set")
	}
	config := new(Config)
	for {
		err := envconfig.Process("", config)
		unreadable, ok := errors.AsType[*envconfig.ParseError](err)
		if !ok {
			break
		}
		p.add(unreadable.KeyName, "%v", unreadable.Err)
		_ = os.Unsetenv(unreadable.KeyName) // so that the others are read
	}
	config.validate(p)
	if len(p.lines) > 0 {
		return nil, errors.New("wrong configuration:\n  " + strings.Join(p.lines, "\n  ") + "\norders help env lists every variable")
	}
	return config, nil
}

var (
	former = map[string]string{
		"COMPLETER_MAX_ATTEMPTS":      "was removed: the completer never gives up",
		"EVENTS_SIGNING_KEY":          "was removed: set EVENTS_URL and EVENTS_SECRET instead (docs/events.md)",
		"EVENTS_SIGNING_KEY_PREVIOUS": "was removed: set EVENTS_URL and EVENTS_SECRET instead (docs/events.md)",
		"LOCK_TIMEOUT":                "is called LEASE_DURATION now",
		"RECEIPTS_DIR":                "was removed: set SMTP_URL to send receipts by mail",
		"STRIPE_TIMEOUT":              "is called STEP_TIMEOUT now",
	}
	variableName = regexp.MustCompile(`(?m)^  ([A-Z_]+)`)
)

// problems are the errors in the environment. A line has the name of the variable, what is
// wrong and what is expected.
type problems struct{ lines []string }

// add adds a problem of a variable that has none yet.
func (p *problems) add(name, format string, arguments ...any) {
	if !slices.ContainsFunc(p.lines, func(line string) bool { return strings.HasPrefix(line, name+":") }) {
		p.lines = append(p.lines, name+": "+fmt.Sprintf(format, arguments...))
	}
}

func (p *problems) check(ok bool, name, format string, arguments ...any) {
	if !ok {
		p.add(name, format, arguments...)
	}
}

func (c *Config) validate(p *problems) {
	const notAddress = "%q is not a host:port such as 127.0.0.1:8080 or [::1]:8080"
	p.check(listenAddress.MatchString(c.ListenAddr), "LISTEN_ADDR", notAddress, c.ListenAddr)
	p.check(c.AdminAddr == "" || listenAddress.MatchString(c.AdminAddr), "ADMIN_ADDR", notAddress, c.AdminAddr)
	p.check(c.LogFormat == "text" || c.LogFormat == "json", "LOG_FORMAT", "%q is neither text nor json", c.LogFormat)
	p.check(c.SecretKey == "" || secretKey.MatchString(string(c.SecretKey)), "STRIPE_SECRET_KEY",
		"is not a secret key, which begins with sk_test_, rk_test_, sk_live_ or rk_live_ and has only letters, digits and _ (its value is not shown)")
	base := httpURL(c.APIBase)
	p.check(c.APIBase == "" || base != nil && !strings.ContainsAny(c.APIBase, "?#") && !strings.Contains(base.Path, "@"), "STRIPE_API_BASE",
		"is not an http or https URL without a query; leave it empty for Stripe itself")
	p.check(base == nil || base.Scheme == "https" || c.Mode() != "live", "STRIPE_API_BASE", "is plain http, which would expose a live key; use https")
	p.check(c.WebhookSecret == "" || webhookSecret.MatchString(string(c.WebhookSecret)), "STRIPE_WEBHOOK_SECRET",
		"is not a signing secret, which begins with whsec_ (its value is not shown)")

	if c.SMTPURL != "" {
		_, err := receipts.NewSMTP(string(c.SMTPURL), "")
		p.check(err == nil, "SMTP_URL", "%v", err)
		p.check(c.ReceiptsFrom != "", "RECEIPTS_FROM", "not set; expected the sender of the receipts, such as My Shop <orders@example.com>")
	}
	p.check(c.SMTPHello == "" || receipts.ValidAddress("x@"+c.SMTPHello) || addressLiteral.MatchString(c.SMTPHello), "SMTP_HELLO",
		"%q is not a host name with a dot such as shop.example.com, or an address such as [192.0.2.1] or [IPv6:2001:db8::1]", c.SMTPHello)
	from, err := mail.ParseAddress(c.ReceiptsFrom)
	p.check(c.ReceiptsFrom == "" || err == nil && receipts.ValidAddress(from.Address), "RECEIPTS_FROM",
		"%q is not a sender such as receipts@example.com or Orders <receipts@example.com>", c.ReceiptsFrom)

	endpoint := httpURL(string(c.EventsURL))
	p.check(c.EventsURL == "" || endpoint != nil && endpoint.User == nil && endpoint.Fragment == "",
		"EVENTS_URL", "is not an http or https URL without a user and a fragment, such as https://shop.example.com/events (its value is not shown)")
	p.check(c.EventsURL != "" || c.EventsSecret == "", "EVENTS_URL", "not set, but EVENTS_SECRET is")
	if _, err := events.ParseSecrets(string(c.EventsSecret)); c.EventsURL+c.EventsSecret != "" && err != nil {
		p.add("EVENTS_SECRET", "%v", err)
	}

	c.Database.validate(p)
	c.Durations.validate(p)
	validateNetwork(p)
}

// Stripe is the access to the payment provider.
type Stripe struct {
	SecretKey     Secret `envconfig:"STRIPE_SECRET_KEY"`
	APIBase       string `envconfig:"STRIPE_API_BASE"`
	WebhookSecret Secret `envconfig:"STRIPE_WEBHOOK_SECRET"`
}

var (
	listenAddress = regexp.MustCompile(`^(\[[^]]*\]|[^:]*):\d{1,5}$`)
	secretKey     = regexp.MustCompile(`^[sr]k_(test|live)_\w+$`)
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

var addressLiteral = regexp.MustCompile(`^\[(\d{1,3}(\.\d{1,3}){3}|IPv6:[[:xdigit:]]*:[[:xdigit:]:.]*)\]$`) // RFC 5321, 4.1.3

// HelloName is the name with which we greet the mail server. It is not that of this host, because servers
// reject a name without a dot such as that of a pod.
func (m *Mail) HelloName() string {
	from, err := mail.ParseAddress(m.ReceiptsFrom)
	if m.SMTPHello != "" || err != nil {
		return m.SMTPHello
	}
	return from.Address[strings.LastIndexByte(from.Address, '@')+1:]
}

// Events is the endpoint of the shop. A process that runs operations needs it, because without it nothing is
// staged.
type Events struct {
	EventsURL    Secret `envconfig:"EVENTS_URL"` // its path may contain a token
	EventsSecret Secret `envconfig:"EVENTS_SECRET"`
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
	StepTimeout    time.Duration `envconfig:"STEP_TIMEOUT" default:"20s"`
	LeaseDuration  time.Duration `envconfig:"LEASE_DURATION" default:"90s"`
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
		name           string
		value, longest time.Duration
	}
	previous := duration{}
	for _, next := range []duration{
		{"STEP_TIMEOUT", d.StepTimeout, longest},
		{"LEASE_DURATION", d.LeaseDuration, longest},
		{"COMPLETER_GRACE", d.CompleterGrace, orders.CreatePeriod - time.Second},
		{"CHARGE_WINDOW", d.ChargeWindow, 23 * time.Hour},
		{"KEY_RETENTION", d.KeyRetention, longest},
	} {
		p.check(next.value >= shortest && next.value <= next.longest, next.name, "%s is not from %s to %s", next.value, shortest, next.longest)
		p.check(previous.value < next.value, next.name, "%s is not more than %s, %s", next.value, previous.name, previous.value)
		previous = next
	}
}

// LongestRun bounds a request: two steps with calls, one of them a second time under the next provider key, and 15
// seconds for the database.
func (d *Durations) LongestRun() time.Duration { return 3*d.StepTimeout + 15*time.Second }

// Secret is a value that only a conversion to string shows.
type Secret string

const redacted = "[redacted]"

// Format hides the value from all verbs.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText hides the value from encoding/json and slog.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

var proxyURL = regexp.MustCompile(`^$|^((https?|socks5h?)://)?(([\w.~!$&'()*+,;=:-]|%[[:xdigit:]]{2})*@)?([\w.-]+|\[[\w.:%-]+\])(:\d*)?/*$`)

// validateNetwork rejects variables of Go's libraries that these would ignore without an error: calls
// would go past the proxy, or each certificate would be unknown.
func validateNetwork(p *problems) {
	proxied := false
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		p.check(proxyURL.MatchString(os.Getenv(name)), name, "is not the URL of a proxy such as http://proxy:3128 (its value is not shown)")
		proxied = proxied || os.Getenv(name) != ""
	}
	for _, name := range []string{"ALL_PROXY", "all_proxy"} {
		p.check(proxied || os.Getenv(name) == "", name, "has no effect here; set HTTPS_PROXY, or unset it")
	}
	for _, folder := range filepath.SplitList(os.Getenv("SSL_CERT_DIR")) {
		_, err := os.ReadDir(folder)
		p.check(err == nil, "SSL_CERT_DIR", "%v", err)
	}
	if file := os.Getenv("SSL_CERT_FILE"); file != "" {
		certificates, err := os.ReadFile(file) //nolint:gosec // the operator names it
		p.check(err == nil, "SSL_CERT_FILE", "%v", err)
		p.check(x509.NewCertPool().AppendCertsFromPEM(certificates), "SSL_CERT_FILE", "%s has no certificate in PEM format", file)
	}
}
