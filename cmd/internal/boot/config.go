package boot

import (
	"fmt"
	"log/slog"
	"net"
	"net/mail"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/receipts"
)

// Database says where the data is.
type Database struct {
	URL Secret `envconfig:"DATABASE_URL" desc:"PostgreSQL 15 or later, such as postgres://user:pass@host:5432/orders. orders dev and orders demo start a private one when it is not set."`
}

func (d *Database) check(f *faults) {
	if d.URL == "" {
		f.missing("DATABASE_URL", "expected postgres://user:pass@host:5432/orders. "+
			"docker compose up -d starts a database at postgres://orders:orders@127.0.0.1:5432/orders; "+
			"orders dev needs none")
		return
	}
	config, err := pgxpool.ParseConfig(string(d.URL))
	if err != nil { // the driver's error would show the password
		f.add("DATABASE_URL", "cannot be read (its value is not shown); expected postgres://user:pass@host:5432/orders")
		return
	}
	switch config.ConnConfig.DefaultQueryExecMode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
		f.add("DATABASE_URL", "its default_query_exec_mode leaves types to guess, and cannot send what an order holds; "+
			"behind a pooler it is cache_describe, else none is needed")
	}
}

// Listen says where the API listens.
type Listen struct {
	Addr string `envconfig:"LISTEN_ADDR" default:":8080" desc:"Address of the API, host:port."`
}

func (l *Listen) check(f *faults) {
	if !isAddress(l.Addr) {
		f.add("LISTEN_ADDR", "%q is not host:port, such as :8080 or 127.0.0.1:8080", l.Addr)
	}
}

func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return err == nil
}

// Admin says where a command that takes requests listens for its operators.
type Admin struct {
	AdminAddr string `envconfig:"ADMIN_ADDR" default:"127.0.0.1:8081" empty:"off" desc:"Address of /metrics, /debug/pprof and /healthz, for operators only: it asks for no credentials. Empty: off. orders worker, completer --every and reaper --every listen only when it is set. Each process on a machine needs one of its own."`
}

func (a *Admin) check(f *faults) { checkAdmin(f, a.AdminAddr) }

// SideAdmin is Admin for the commands that run beside the API, mostly on the same
// machine, where one default would be in use already.
type SideAdmin struct {
	AdminAddr string `envconfig:"ADMIN_ADDR" empty:"off" desc:"Address of /metrics, /debug/pprof and /healthz, for operators only, while the command keeps running: it asks for no credentials. Not set: off. Each process on a machine needs one of its own."`
}

func (a *SideAdmin) check(f *faults) { checkAdmin(f, a.AdminAddr) }

func checkAdmin(f *faults, address string) {
	if address != "" && !isAddress(address) {
		f.add("ADMIN_ADDR", "%q is not host:port, such as 127.0.0.1:8081; empty turns it off", address)
	}
}

// Stripe says how to reach the payment provider.
type Stripe struct {
	SecretKey     Secret `envconfig:"STRIPE_SECRET_KEY" desc:"Stripe's secret key, from https://dashboard.stripe.com/test/apikeys. orders dev and orders demo use a stand-in when it is not set, and refuse live keys."`
	APIBase       string `envconfig:"STRIPE_API_BASE" desc:"Another address for Stripe's API, such as that of a stand-in."`
	WebhookSecret Secret `envconfig:"STRIPE_WEBHOOK_SECRET" desc:"Signing secret (whsec_…) of the endpoint https://your-host/v1/webhooks/stripe, from https://dashboard.stripe.com/test/webhooks or stripe listen. When it is not set, the webhook is off."`
}

func (s *Stripe) check(f *faults) {
	const where = "get a test key (sk_test_…) at https://dashboard.stripe.com/test/apikeys; orders dev needs none"
	switch {
	case s.SecretKey == "":
		f.missing("STRIPE_SECRET_KEY", where)
		if s.APIBase != "" && f.local {
			f.add("STRIPE_API_BASE", "set without STRIPE_SECRET_KEY; set both, or neither for a stand-in")
		}
	case f.local && !s.testKey():
		// Not "a live key": what is no test key for sure must not be tried.
		f.add("STRIPE_SECRET_KEY", "is not a test key (its value is not shown), and orders dev and orders demo take no other; "+
			"expected sk_test_… or rk_test_…")
	case !strings.HasPrefix(string(s.SecretKey), "sk_") && !strings.HasPrefix(string(s.SecretKey), "rk_"):
		f.add("STRIPE_SECRET_KEY", "is not a secret key, which begins with sk_ or rk_ (its value is not shown); %s", where)
	}
	if s.APIBase != "" {
		if u, err := url.Parse(s.APIBase); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			f.add("STRIPE_API_BASE", "is not an http or https URL; leave it empty for Stripe itself")
		}
	}
	if rest, found := strings.CutPrefix(string(s.WebhookSecret), "whsec_"); s.WebhookSecret != "" && (!found || rest == "") {
		f.add("STRIPE_WEBHOOK_SECRET", "is not a signing secret, which begins with whsec_ (its value is not shown); "+
			"get it from the endpoint's page at https://dashboard.stripe.com/test/webhooks, or leave it empty to do without the webhook")
	}
}

func (s *Stripe) testKey() bool {
	key := string(s.SecretKey)
	return strings.HasPrefix(key, "sk_test_") || strings.HasPrefix(key, "rk_test_")
}

// Provider names who is asked to charge cards, for people.
func (s *Stripe) Provider() string {
	switch {
	case s.APIBase != "":
		base, _ := url.Parse(s.APIBase) // checked by Load
		return "whoever answers at " + base.Host
	case s.testKey():
		return "Stripe's test mode"
	default:
		return "Stripe, for real money"
	}
}

// Mail says how receipts leave.
type Mail struct {
	SMTPURL Secret `envconfig:"SMTP_URL" desc:"Mail server for receipts, such as smtp://user:pass@host:587. When it is not set, receipts become .eml files in a folder that the log names."`
	From    string `envconfig:"RECEIPTS_FROM" default:"Orders <receipts@example.com>" desc:"Sender of the receipts."`
}

func (m *Mail) check(f *faults) {
	if m.SMTPURL != "" {
		if _, err := receipts.NewSMTP(string(m.SMTPURL)); err != nil {
			f.add("SMTP_URL", "%v", err) // it quotes nothing
		}
	}
	if _, err := mail.ParseAddress(m.From); err != nil {
		f.add("RECEIPTS_FROM", "%q is not a sender such as receipts@example.com or Orders <receipts@example.com>", m.From)
	}
}

// Durations are the bounds that must be in order (R9).
type Durations struct {
	StripeTimeout  Duration `envconfig:"STRIPE_TIMEOUT" default:"20s" desc:"Bound of one step's calls to Stripe, retries included."`
	LockTimeout    Duration `envconfig:"LOCK_TIMEOUT" default:"90s" desc:"Length of a lease: how long a run may hold a key. More than STRIPE_TIMEOUT."`
	CompleterGrace Duration `envconfig:"COMPLETER_GRACE" default:"5m" desc:"Age at which an unfinished key counts as abandoned. More than LOCK_TIMEOUT."`
	KeyRetention   Duration `envconfig:"KEY_RETENTION" default:"72h" desc:"How long a finished key is kept. More than COMPLETER_GRACE."`
}

// check refuses durations that are out of order (R9): a provider's call that
// outlives the lease would be overtaken by another run, a completer that comes
// early would meet runs that are alive, and a key that is deleted before its
// client retries is refused to it.
func (d *Durations) check(f *faults) {
	chain := []struct {
		name  string
		value Duration
	}{
		{"STRIPE_TIMEOUT", d.StripeTimeout},
		{"LOCK_TIMEOUT", d.LockTimeout},
		{"COMPLETER_GRACE", d.CompleterGrace},
		{"KEY_RETENTION", d.KeyRetention},
	}
	var text strings.Builder
	var wrong []string
	readable := true
	for i, link := range chain {
		link.value.check(f, link.name)
		readable = readable && link.value.wrong == ""
		if i > 0 {
			sign := " < "
			if previous := chain[i-1]; previous.value.Duration >= link.value.Duration {
				sign = " !< "
				wrong = append(wrong, previous.name+" must be less than "+link.name)
			}
			text.WriteString(sign)
		}
		fmt.Fprintf(&text, "%s %s", link.name, link.value.Duration)
	}
	if readable && len(wrong) > 0 {
		f.add("durations out of order", "%s (%s)", text.String(), strings.Join(wrong, ", "))
	}
}

// LongestRun is how long one request may take: three steps at the provider's
// slowest, and the database's time between them.
func (d *Durations) LongestRun() time.Duration { return 3*d.StripeTimeout.Duration + 15*time.Second }

// Completer bounds the completer's tries.
type Completer struct {
	MaxAttempts Count `envconfig:"COMPLETER_MAX_ATTEMPTS" default:"10" desc:"How often the completer tries a key, with growing pauses, before a person has to look at it."`
}

func (c *Completer) check(f *faults) { c.MaxAttempts.check(f, "COMPLETER_MAX_ATTEMPTS") }

// Traces says where traces go. OpenTelemetry reads this variable by itself, with
// others (see docs/tracing.md); here it is only looked at.
type Traces struct {
	Endpoint Secret `envconfig:"OTEL_EXPORTER_OTLP_ENDPOINT" desc:"Collector of OpenTelemetry traces (OTLP over HTTP), such as http://localhost:4318. When it is not set, nothing is traced. The other OTEL_ variables count as well."`
}

func (t *Traces) check(f *faults) {
	if t.Endpoint == "" {
		return
	}
	if u, err := url.Parse(string(t.Endpoint)); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		f.add("OTEL_EXPORTER_OTLP_ENDPOINT", "is not an http or https URL such as http://localhost:4318; leave it empty to trace nothing")
	}
}

// Log says what is logged and how.
type Log struct {
	Level  string `envconfig:"LOG_LEVEL" default:"info" desc:"debug, info, warn or error."`
	Format string `envconfig:"LOG_FORMAT" default:"text" desc:"text or json."`
}

func (l *Log) check(f *faults) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		f.add("LOG_LEVEL", "%q is none of debug, info, warn, error", l.Level)
	}
	if l.Format != "text" && l.Format != "json" {
		f.add("LOG_FORMAT", "%q is neither text nor json", l.Format)
	}
}

// Serve is the environment of orders serve.
type Serve struct {
	Database
	Listen
	Admin
	Stripe
	Durations
	Traces
	Log
}

// Keys is the environment of the commands that go on with keys: completer,
// reconcile, keys retry and keys resolve.
type Keys struct {
	Database
	Stripe
	Durations
	Traces
	Log
}

// Upkeep is the environment of the commands that look after keys and need no
// provider for it: reaper, keys list and keys show.
type Upkeep struct {
	Database
	Durations
	Log
}

// Worker is the environment of orders worker.
type Worker struct {
	Database
	SideAdmin
	Mail
	Traces
	Log
}

// Store is the environment of the commands that need only the database.
type Store struct {
	Database
	Log
}
