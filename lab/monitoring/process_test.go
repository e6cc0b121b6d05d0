package monitoring_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
	"example.com/orders-api/payments/stripetest"
)

func TestMain(m *testing.M) { os.Exit(labtest.Main{M: m}.Run()) }

const (
	createEndpoint  = "POST /v1/payment_intents"
	confirmEndpoint = "POST /v1/payment_intents/{id}/confirm"
	readEndpoint    = "GET /v1/payment_intents/{id}"
)

// plant are running processes, whose metrics are read, and what their faults need.
type plant struct {
	*labtest.Fixture
	*programtest.API

	t       *testing.T
	running []*programtest.Process
	admin   map[string]string // addresses, by command
	fault   []*stripetest.Injection
	n       int

	reject atomic.Bool // of the shop's endpoint
}

func (p *plant) start(args ...string) {
	p.t.Helper()
	environ := p.With("ADMIN_ADDR=127.0.0.1:0", "LISTEN_ADDR=127.0.0.1:0", "STRIPE_WEBHOOK_SECRET=whsec_fixture")
	if args[0] == "serve" {
		p.API = p.Serve(environ, "--shutdown-delay", "0")
	} else {
		p.API = &programtest.API{Process: labtest.Start(p.t, environ, args...)}
	}
	p.running = append(p.running, p.Process)
	p.admin[args[0]] = p.WaitFor(&p.Stderr, `serving metrics.*address"?[=:]"?([0-9.]+:[0-9]+)`)[1]
}

// eachSays waits for each process: a scrape reads all of them, and each learns of a fault in its own time.
func (p *plant) eachSays(pattern string) {
	p.t.Helper()
	for _, process := range p.running {
		process.WaitFor(&process.Stderr, pattern)
	}
}

func (p *plant) inject(fault stripetest.Fault, endpoints ...string) {
	for _, endpoint := range endpoints {
		rule := stripetest.Rule{Fault: fault, Endpoint: endpoint, Times: stripetest.Always}
		if fault == stripetest.Slow {
			rule.Delay = 6 * time.Second
		}
		p.fault = append(p.fault, p.Stripe.Inject(rule))
	}
}

func (p *plant) heal() {
	for _, fault := range p.fault {
		fault.Release()
	}
	p.fault = nil
}

// orders sends n orders at once.
func (p *plant) orders(n int, replacements ...string) {
	p.t.Helper()
	body := strings.NewReplacer(replacements...).Replace(programtest.Tea)
	var sending sync.WaitGroup
	for range n {
		p.n++
		key := fmt.Sprintf("an-order-that-is-measured-%d", p.n)
		sending.Go(func() {
			_, _ = p.Do(context.WithoutCancel(p.t.Context()), http.MethodPost, "/v1/orders", body, http.Header{"Idempotency-Key": {key}})
		})
	}
	sending.Wait()
}

// command may fail, as a run with failed keys does.
func (p *plant) command(args ...string) {
	p.t.Helper()
	labtest.Start(p.t, p.With("SMTP_URL=smtp://"+programtest.NewMailServer(p.t, "").Address, "RECEIPTS_FROM=shop@example.com"), args...).Wait()
}

// lockKeys keeps the runs of the orders waiting.
func (p *plant) lockKeys(orders int) {
	p.t.Helper()
	tx, err := p.Pool.Begin(p.t.Context())
	require.NoError(p.t, err)
	_, err = tx.Exec(p.t.Context(), "LOCK TABLE idempotency_keys")
	require.NoError(p.t, err)
	p.orders(orders)
	require.NoError(p.t, tx.Rollback(p.t.Context()))
}

func (p *plant) hide() { p.Exec("ALTER TABLE idempotency_keys RENAME TO hidden_keys") }
func (p *plant) show() { p.Exec("ALTER TABLE hidden_keys RENAME TO idempotency_keys") }

func (p *plant) abandoned(column, age string) {
	p.t.Helper()
	p.inject(stripetest.Unauthorized, confirmEndpoint)
	p.orders(1)
	p.Exec("UPDATE idempotency_keys SET " + column + " = " + column + " - interval '" + age + "'")
}

// A situation is a fault that a real process meets.
type situation struct {
	args  []string // serve by default
	conns int      // of the pool; 0 is the default

	events bool // the service has an endpoint
	fault  func(*plant)
	again  func(*plant) // if set, the fault goes on at the rate between its two scrapes
	heal   func(*plant)
}

func nothing(*plant) {}

// finish resumes what a fault has left.
func finish(p *plant) {
	p.heal()
	p.Exec("UPDATE idempotency_keys SET updated_at = updated_at - interval '1 day' WHERE finished_at IS NULL")
	p.command("completer")
}

var faults = map[string]situation{
	"OrdersDown": {fault: func(p *plant) { p.Signal(syscall.SIGKILL); p.Wait() }, heal: func(p *plant) { p.start("serve") }},
	"OrdersDatabaseUnreadable": {
		fault: func(p *plant) {
			serve := p.API
			p.start("worker")
			p.API = serve
			p.Exec("ALTER TABLE audit_records RENAME TO hidden_records")
			p.eachSays("not ready: orders cannot be stored")
		},
		heal: func(p *plant) {
			p.Exec("ALTER TABLE hidden_records RENAME TO audit_records")
			p.eachSays(`(?s)not ready: .*ready: orders can be stored`)
		},
	},
	"OrdersServerErrors": {
		fault: func(p *plant) { p.inject(stripetest.Unauthorized, createEndpoint); p.orders(1) },
		again: func(p *plant) { p.orders(3) }, heal: (*plant).heal,
	},
	"OrdersKeysStuck": {fault: func(p *plant) { p.abandoned("created_at", "2 hours") }, heal: finish},
	"OrdersKeyOverdue": {fault: func(p *plant) {
		p.orders(1, "pm_card_visa", "pm_card_threeDSecure2Required")
		p.Exec("UPDATE idempotency_keys SET created_at = created_at - interval '26 hours' WHERE finished_at IS NULL")
		p.Exec("UPDATE orders SET created_at = created_at - interval '26 hours' WHERE status = 'requires_action'")
	}, heal: finish},
	"OrdersReaperBehind": {
		fault: func(p *plant) { p.Exec("UPDATE idempotency_keys SET finished_at = finished_at - interval '80 hours'") },
		heal:  func(p *plant) { p.command("reaper") },
	},
	"OrdersMaintenanceFailing": {
		args:  []string{"completer", "--every", "100ms"},
		fault: func(p *plant) { p.hide(); p.WaitFor(&p.Stderr, `(?s)run failed`) },
		again: func(p *plant) { p.WaitFor(&p.Stderr, `(?s)run failed.*run failed`) }, heal: (*plant).show,
	},
	"OrdersReceiptsLate": {
		fault: func(p *plant) { p.orders(1); p.Exec("UPDATE staged_jobs SET created_at = now() - interval '1 hour'") },
		heal:  func(p *plant) { p.command("worker", "--once") },
	},
	"OrdersReceiptsFailed": {
		fault: func(p *plant) {
			p.orders(1)
			p.Exec("UPDATE staged_jobs SET args = jsonb_build_object('order_id', gen_random_uuid()) WHERE kind = 'receipt'")
			p.command("worker", "--once")
		},
		heal: func(p *plant) { p.Exec("DELETE FROM staged_jobs") },
	},
	"OrdersProviderRejectsCredentials": {
		fault: func(p *plant) { p.inject(stripetest.Unauthorized, createEndpoint); p.orders(1) }, heal: (*plant).heal,
	},
	"OrdersProviderRefuses": {
		fault: func(p *plant) { p.orders(20, "pm_card_visa", "pm_unknown") }, heal: nothing,
	},
	"OrdersProviderOutcomeUnknown": {
		fault: func(p *plant) { p.inject(stripetest.Unavailable, confirmEndpoint, readEndpoint); p.orders(1) },
		again: func(p *plant) { p.orders(1) }, heal: (*plant).heal,
	},
	"OrdersProviderSlow": {
		fault: func(p *plant) { p.inject(stripetest.Slow, confirmEndpoint); p.orders(1) },
		again: func(p *plant) { p.orders(1) }, heal: (*plant).heal,
	},
	"OrdersRefundFailedLate": {
		fault: func(p *plant) { p.failRefund(); p.command("worker", "--once") }, heal: (*plant).acknowledge,
	},
	"OrdersDiscrepancies": {
		fault: func(p *plant) { p.readUntil("40 days"); p.command("worker", "--once") }, heal: (*plant).acknowledge,
	},
	"OrdersProviderEventsBehind": {
		fault: func(p *plant) { p.readUntil("1 hour") },
		heal:  func(p *plant) { p.command("worker", "--once") },
	},
	"OrdersProviderChangeFailed": {
		fault: func(p *plant) {
			p.inject(stripetest.Unauthorized, "GET /v1/disputes")
			p.failRefund()
			p.Exec("UPDATE staged_jobs SET attempt = 1000, run_at = now() WHERE kind = 'provider_change'")
			p.command("worker", "--once")
		},
		heal: func(p *plant) {
			p.heal()
			p.command("jobs", "retry", "all", "--reason", "a test")
			p.command("worker", "--once")
		},
	},
	"OrdersDisputed": {
		fault: func(p *plant) {
			_, err := p.Stripe.Dispute(p.Stripe.Charges()[0].IntentID, 2500, "fraudulent", "warning_needs_response")
			require.NoError(p.t, err)
			p.command("worker", "--once")
		},
		heal: func(p *plant) {
			require.NoError(p.t, p.Stripe.UpdateDispute(p.Stripe.Disputes()[0].ID, "warning_under_review"))
			p.command("worker", "--once")
		},
	},
	"OrdersEventsLate": {
		events: true,
		fault: func(p *plant) {
			p.orders(1)
			p.Exec("UPDATE staged_jobs SET created_at = now() - interval '1 hour' WHERE kind = 'event'")
		},
		heal: func(p *plant) { p.command("worker", "--once") },
	},
	"OrdersEventsFailed": {
		events: true,
		fault: func(p *plant) {
			p.reject.Store(true)
			p.orders(1)
			p.Exec("UPDATE staged_jobs SET attempt = 1000 WHERE kind = 'event'")
			p.command("worker", "--once")
		},
		heal: func(p *plant) {
			p.reject.Store(false)
			p.command("jobs", "retry", "all", "--reason", "a test")
			p.command("worker", "--once")
		},
	},
	"OrdersWebhooksRejected": {
		fault: func(p *plant) { p.event() }, again: func(p *plant) { p.event() }, heal: nothing,
	},
	"OrdersShedding": {conns: 1, fault: func(p *plant) { p.lockKeys(20) }, again: func(p *plant) { p.lockKeys(20) }, heal: nothing},
	"OrdersPoolSaturated": {
		conns: 8, fault: func(p *plant) { p.lockKeys(30) }, again: func(p *plant) { p.lockKeys(30) }, heal: nothing,
	},
	"OrdersLeasesLost": {fault: func(p *plant) {
		held := p.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
		done := make(chan struct{})
		go func() { p.orders(1); close(done) }()
		<-held.Reached()
		p.Exec("UPDATE idempotency_keys SET lease_token = gen_random_uuid() WHERE locked_at IS NOT NULL")
		held.Release()
		<-done
	}, heal: nothing},
}

// event is an event of another webhook endpoint, whose secret differs.
func (p *plant) event() {
	p.t.Helper()
	got, err := p.Do(p.t.Context(), http.MethodPost, "/v1/webhooks/stripe", "{}", http.Header{"Stripe-Signature": {"t=1,v1=00"}})
	require.NoError(p.t, err)
	require.Equal(p.t, http.StatusBadRequest, got.Status)
}

func (p *plant) acknowledge() {
	p.Exec("UPDATE staged_jobs SET acknowledged_at = now() WHERE kind = 'discrepancy'")
}

// readUntil sets the place in the provider's list of events.
func (p *plant) readUntil(age string) {
	p.Exec("INSERT INTO provider_event_place (read_until) VALUES (now()) ON CONFLICT DO NOTHING")
	p.Exec("UPDATE provider_event_place SET read_until = now() - interval '" + age + "'")
}

// failRefund refunds the paid order, and the bank returns the money later.
func (p *plant) failRefund() {
	p.t.Helper()
	var order string
	require.NoError(p.t, p.Pool.QueryRow(p.t.Context(), "SELECT id::text FROM orders").Scan(&order))
	p.orders(1, "pm_card_visa", "pm_card_pendingRefund")
	require.NoError(p.t, p.Pool.QueryRow(p.t.Context(), "SELECT id::text FROM orders WHERE id::text <> $1", order).Scan(&order))
	refunded, err := p.Do(p.t.Context(), http.MethodPost, "/v1/orders/"+order+"/refunds", "{}", http.Header{"Idempotency-Key": {"a-refund-that-fails-1"}})
	require.NoError(p.t, err)
	require.Equal(p.t, http.StatusCreated, refunded.Status)
	refund := p.Stripe.Refunds()[0].ID
	require.NoError(p.t, p.Stripe.Settle(refund, false))
	payload, signature, err := p.Stripe.Event("whsec_fixture", "refund.failed", refund)
	require.NoError(p.t, err)
	got, err := p.Do(p.t.Context(), http.MethodPost, "/v1/webhooks/stripe", string(payload), http.Header{"Stripe-Signature": {signature}})
	require.NoError(p.t, err)
	require.Equal(p.t, http.StatusOK, got.Status, got.Body)
}

// samples are the values of one scrape.
type samples struct {
	at     time.Time
	values map[string]float64
}

var sampleLine = regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? (\S+)$`)

// scrape returns what Prometheus would store.
func (p *plant) scrape() samples {
	p.t.Helper()
	found := samples{time.Now(), map[string]float64{}}
	for command, address := range p.admin {
		p.read(found, address, fmt.Sprintf(`job="orders",instance="a",command=%q`, command))
	}
	return found
}

func (p *plant) read(found samples, address, target string) {
	p.t.Helper()
	found.values["up{"+target+"}"] = 0
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	require.NoError(p.t, err)
	response, err := http.DefaultClient.Do(request) //nolint:forbidigo // a test
	if err != nil {
		return
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	for _, match := range sampleLine.FindAllStringSubmatch(string(content), -1) {
		value, err := strconv.ParseFloat(match[3], 64)
		require.NoError(p.t, err)
		labels := match[2]
		if labels != "" {
			labels += ","
		}
		found.values[match[1]+"{"+labels+target+"}"] = value
	}
	found.values["up{"+target+"}"] = 1
}

var counter = regexp.MustCompile(`_(total|count|sum|bucket)\{`)

const (
	quiet    = 40  // minutes before the fault
	faulty   = 75  // the minute in which it ends
	recorded = 130 // the last one
)

// record plays the scrapes: start, before, the fault, its continuation, and after it.
func record(t *testing.T, start, before, first, more, after samples) storage.Queryable {
	t.Helper()
	at := make([]samples, recorded+1)
	for minute := range at {
		switch {
		case minute < quiet/2:
			at[minute] = start
		case minute < quiet:
			at[minute] = before
		case minute <= faulty:
			at[minute] = continued(first, more, minute-quiet)
		default: // counters keep what the fault has counted
			last := continued(first, more, faulty-quiet)
			at[minute] = samples{values: maps.Clone(after.values)}
			for name, value := range last.values {
				if counter.MatchString(name) && value > after.values[name] {
					at[minute].values[name] = value
				}
			}
		}
	}
	series := map[string]*promql.Series{}
	for minute, scraped := range at {
		for name, value := range scraped.values {
			if series[name] == nil {
				metric, err := parser.NewParser(parser.Options{}).ParseMetric(name)
				require.NoError(t, err, name)
				series[name] = &promql.Series{Metric: metric}
			}
			series[name].Floats = append(series[name].Floats, promql.FPoint{T: (time.Duration(minute) * time.Minute).Milliseconds(), F: value})
		}
	}
	var all []promql.Series
	for _, one := range series {
		all = append(all, *one)
	}
	return queryable(all)
}

// continued is the state some minutes after first, at the rate of the counters between the two.
func continued(first, more samples, minutes int) samples {
	if minutes == 0 || more.values == nil {
		return first
	}
	result := samples{values: maps.Clone(more.values)}
	for name, value := range more.values {
		if counter.MatchString(name) {
			result.values[name] = first.values[name] + (value-first.values[name])/more.at.Sub(first.at).Seconds()*float64(60*minutes)
		}
	}
	return result
}

func TestAlerts_realProcess(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, rule := range rules(t) {
		s, known := faults[rule.Alert]
		require.True(t, known, "no real process has the fault of %s", rule.Alert)
		seen[rule.Alert] = true
		t.Run(rule.Alert, func(t *testing.T) {
			t.Parallel()
			p := &plant{Fixture: labtest.NewFixture(t), t: t, admin: map[string]string{}}
			if s.conns > 0 {
				p.Environ = p.With(fmt.Sprintf("DATABASE_URL=%s&pool_max_conns=%d", p.databaseURL(), s.conns))
			}
			if s.events {
				shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if p.reject.Load() {
						w.WriteHeader(http.StatusBadRequest)
					}
				}))
				t.Cleanup(shop.Close)
				p.Environ = p.With("EVENTS_URL="+shop.URL, "EVENTS_SECRET=whsec_"+strings.Repeat("A", 32))
			}
			if s.args == nil {
				s.args = []string{"serve"}
			}
			p.start(s.args...)
			start := p.scrape()
			if s.args[0] == "serve" {
				p.orders(1)
			}
			before := p.scrape()
			s.fault(p)
			first, more := p.scrape(), samples{}
			if s.again != nil {
				s.again(p)
				more = p.scrape()
			}
			s.heal(p)
			data := record(t, start, before, first, more, p.scrape())
			wait := time.Duration(rule.For)
			require.False(t, firesIn(t, data, rule.Expr, wait, 0, quiet-1), "it fires before the fault")
			require.True(t, firesIn(t, data, rule.Expr, wait, quiet, faulty), "it does not fire")
			require.False(t, firesIn(t, data, rule.Expr, wait, recorded-15, recorded), "it still fires long after the fault")
		})
	}
	require.Len(t, seen, len(faults), "a fault names an alert that does not exist")
}

func (p *plant) databaseURL() string {
	for _, setting := range p.Environ {
		if url, ok := strings.CutPrefix(setting, "DATABASE_URL="); ok {
			return url
		}
	}
	return ""
}
