package recorded

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

const (
	testKey       = "sk_test_recorded"
	webhookSecret = orderstest.WebhookSecret
)

// A question is what is asked about an exchange. Tests plant a wrong answer in one.
type question string

const (
	ofClient question = "client"
	ofFake   question = "fake"
	ofAPI    question = "API"
	ofEvent  question = "event"
)

// plant changes an answer before it is compared.
type plant func(question, exchange, *response)

func honest(question, exchange, *response) {}

// A report collects differences and figures.
type report struct {
	differences  []string
	read         map[string]int // by what they are
	verdicts     map[string]int // by row of the table
	compared     int            // with the fake
	notCompared  map[string]int // by reason
	declineCodes map[string]int // of orders
}

func newReport() *report {
	return &report{read: map[string]int{}, verdicts: map[string]int{}, notCompared: map[string]int{}, declineCodes: map[string]int{}}
}

func (r *report) differ(e exchange, q question, format string, args ...any) {
	r.differences = append(r.differences, fmt.Sprintf("%s (%s), %s: %s", e.at, e.Kind, q, fmt.Sprintf(format, args...)))
}

func (r *report) equal(e exchange, q question, what string, recorded, got any) {
	if fmt.Sprint(recorded) != fmt.Sprint(got) {
		r.differ(e, q, "%s is %v, and recorded is %v", what, show(got), show(recorded))
	}
}

func show(value any) string { return cmp.Or(fmt.Sprint(value), "empty") }

// askClient answers a call of the client with the recorded response.
func askClient(t *testing.T, r *report, e exchange, edit plant) {
	t.Helper()
	answer := e.response()
	edit(ofClient, e, &answer)
	var sent atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sent.Add(1)
		answer.write(w)
	}))
	defer server.Close()
	var log bytes.Buffer
	c := payments.New(payments.Config{
		SecretKey: testKey, BaseURL: server.URL, WebhookSecret: webhookSecret, Timeout: 10 * time.Second,
		Backoff: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	defer c.Close()

	call := callOf(e)
	got, err := call.send(t.Context(), c)
	var failed *payments.Error
	if err != nil && !errors.As(err, &failed) {
		r.differ(e, ofClient, "an error of another type: %v", err)
		return
	}
	if secret := e.intent().text("client_secret"); secret != "" && strings.Contains(log.String()+fmt.Sprint(err), secret) {
		r.differ(e, ofClient, "the client secret is in the log or in the error")
	}
	switch {
	case e.Status < http.StatusBadRequest && call.want == nil:
		r.read["other objects"]++
		if failed == nil || failed.Outcome != payments.Unknown {
			r.differ(e, ofClient, "%v, although the response is another object", cmp.Or(fmt.Sprint(err), "answered"))
		}
	case e.Status < http.StatusBadRequest:
		r.read[call.what]++
		if err != nil {
			r.differ(e, ofClient, "%v", err)
			return
		}
		r.equal(e, ofClient, call.what, call.want, got)
	case failed == nil:
		r.differ(e, ofClient, "no error")
	default:
		r.read["errors"]++
		compareError(r, e, failed, sent.Load())
	}
}

func compareError(r *report, e exchange, got *payments.Error, sent int32) {
	row, ok := judge(e)
	if !ok {
		r.differ(e, ofClient, "the table has no row for this error")
		return
	}
	r.verdicts[row.name]++
	want, failure := row.want, e.failure()
	r.equal(e, ofClient, "the outcome ("+row.name+")", want.outcome, got.Outcome)
	r.equal(e, ofClient, "whether it is repeated", want.repeated && e.header("Stripe-Should-Retry") != "false", sent > 1)
	r.equal(e, ofClient, "whether an operator is needed", want.operator, got.NeedsOperator)
	r.equal(e, ofClient, "whether the response is saved", want.saved || e.header("Idempotent-Replayed") == "true", got.SavedUnderKey)
	r.equal(e, ofClient, "the status", e.Status, got.HTTPStatus)
	r.equal(e, ofClient, "the request id", e.header("Request-Id"), got.RequestID)
	if got.Outcome == payments.NotOffered || failure == nil {
		return
	}
	for name, value := range map[string]string{
		"type": got.Type, "code": got.Code, "decline_code": got.DeclineCode, "param": got.Param,
	} {
		r.equal(e, ofClient, name, failure.text(name), value)
	}
	if want.outcome == payments.Declined || want.outcome == payments.Refused {
		r.equal(e, ofClient, "the message", failure.text("message"), got.Message)
	}
	if intent := e.intent(); complete(intent, "payment_intent") {
		if got.Intent == nil {
			r.differ(e, ofClient, "the intent of the error is missing")
			return
		}
		r.equal(e, ofClient, "the intent of the error", wantIntent(intent, false), gotIntent(*got.Intent))
	}
}

// clientCall is a call of the client, and what it must return for a success, or nil if the response has no
// object of this kind.
type clientCall struct {
	what string
	send func(context.Context, *payments.Client) (any, error)
	want any
}

// callOf returns the call that the recorded request is most like. Requests that the client never sends become
// reads, confirms or cancels, because errors do not depend on the call.
func callOf(e exchange) clientCall {
	replayed := e.header("Idempotent-Replayed") == "true"
	o, listed, kind := e.Body, e.Body.list("data"), e.Body.text("object")
	switch {
	case e.Status >= http.StatusBadRequest:
		o, kind = e.intent(), ""
	case kind == "list" || kind == "search_result":
		kind = "list of " + path(e)
	case !complete(o, kind):
		kind = "" // unreadable
	}
	id := cmp.Or(o.text("id"), idInPath(e), "pi_recorded")
	switch {
	case kind == "list of payment_intents", e.Status >= 400 && e.Method == http.MethodGet && strings.HasSuffix(e.Path, "/payment_intents"):
		return clientCall{"list of intents", func(ctx context.Context, c *payments.Client) (any, error) {
			intents, next, err := c.List(ctx, time.Unix(0, 0), e.param("starting_after"))
			return []any{texts(intents, gotIntent), next}, err
		}, []any{texts(listed, func(o object) string { return wantIntent(o, false) }), next(e)}}
	case strings.HasSuffix(e.Path, "/payment_intents/search"):
		var want any // nil for a part of the results, which is an error
		if more, _ := e.Body["has_more"].(bool); !more && kind == "list of search" {
			want = texts(listed, func(o object) string { return o.text("id") })
		}
		return clientCall{"search", func(ctx context.Context, c *payments.Client) (any, error) {
			return c.Search(ctx, "order_id", "1")
		}, want}
	case kind == "list of refunds":
		return clientCall{"list of refunds", func(ctx context.Context, c *payments.Client) (any, error) {
			refunds, next, err := c.ListAllRefunds(ctx, time.Unix(0, 0), e.param("starting_after"))
			return []any{texts(refunds, gotRefund), next}, err
		}, []any{texts(listed, wantRefund), next(e)}}
	case kind == "list of events":
		return clientCall{"list of events", func(ctx context.Context, c *payments.Client) (any, error) {
			events, next, at, err := c.ListEvents(ctx, time.Unix(0, 0), e.param("starting_after"))
			return []any{texts(events, gotEvent), next, at.UTC().Format(http.TimeFormat)}, err
		}, []any{texts(listed, wantEvent), next(e), e.header("Date")}}
	case kind == "list of disputes":
		return clientCall{"list of disputes", func(ctx context.Context, c *payments.Client) (any, error) {
			disputes, next, err := c.ListAllDisputes(ctx, time.Unix(0, 0), e.param("starting_after"))
			return []any{texts(disputes, gotDispute), next}, err
		}, []any{texts(listed, wantDispute), next(e)}}
	case kind == "refund": // a GET returns the same
		return clientCall{"refund", func(ctx context.Context, c *payments.Client) (any, error) {
			re, err := c.Refund(ctx, "recorded-key-of-a-refund", payments.RefundParams{
				IntentID: o.text("payment_intent"), Amount: o.number("amount"), Currency: o.text("currency"), Metadata: o.metadata(),
			})
			return gotRefund(re), err
		}, wantRefund(o)}
	}
	var want any
	if kind == "payment_intent" {
		want = wantIntent(o, replayed)
	}
	switch {
	case e.Method == http.MethodGet:
		return clientCall{"intent", func(ctx context.Context, c *payments.Client) (any, error) {
			return intentOf(c.Get(ctx, id))
		}, want}
	case strings.HasSuffix(e.Path, "/payment_intents") && e.param("confirm") == "":
		return clientCall{"intent", func(ctx context.Context, c *payments.Client) (any, error) {
			return intentOf(c.Create(ctx, "recorded-key-of-a-create", payments.CreateParams{
				Amount: o.number("amount"), Currency: o.text("currency"), PaymentMethod: "pm_card_visa", Metadata: o.metadata(),
			}))
		}, want}
	case strings.HasSuffix(e.Path, "/cancel"):
		return clientCall{"intent", func(ctx context.Context, c *payments.Client) (any, error) {
			return intentOf(c.Cancel(ctx, "recorded-key-of-a-cancel", id))
		}, want}
	default:
		return clientCall{"intent", func(ctx context.Context, c *payments.Client) (any, error) {
			return intentOf(c.Confirm(ctx, "recorded-key-of-a-confirm", id, strings.EqualFold(e.param("off_session"), "true")))
		}, want}
	}
}

// path returns the last word of a path, such as refunds.
func path(e exchange) string { return e.Path[strings.LastIndex(e.Path, "/")+1:] }

// idInPath returns the unescaped id after /v1/payment_intents/.
func idInPath(e exchange) string {
	rest, _ := strings.CutPrefix(e.Path, "/v1/payment_intents/")
	if rest == e.Path {
		return ""
	}
	id, _, _ := strings.Cut(rest, "/")
	id, _ = url.QueryUnescape(id)
	return id
}

// next returns the start of the next page.
func next(e exchange) string {
	listed := e.Body.list("data")
	if more, _ := e.Body["has_more"].(bool); !more || len(listed) == 0 {
		return ""
	}
	return listed[len(listed)-1].text("id")
}

func texts[T any](objects []T, text func(T) string) []string {
	all := make([]string, 0, len(objects))
	for _, o := range objects {
		all = append(all, text(o))
	}
	return all
}

// complete reports whether an object has what the client needs of it.
func complete(o object, kind string) bool {
	return o.text("object") == kind && (kind == "payment_intent" && o.object("metadata") != nil || kind == "refund") &&
		o.text("id") != "" && o.text("status") != "" && o.number("amount") > 0 && o.text("currency") != ""
}

func intentOf(intent payments.Intent, err error) (any, error) { return gotIntent(intent), err }

// gotIntent and wantIntent return all that the client reads of an intent.
func gotIntent(i payments.Intent) string {
	last, action := "", ""
	if i.LastError != nil {
		last = fmt.Sprintf("%q", *i.LastError)
	}
	if i.Action != nil {
		action = fmt.Sprintf("%q %q", i.Action.Type, i.Action.ClientSecret())
	}
	return fmt.Sprintf("%s %s %d %d %s %v %s error:%s action:%s replayed:%t", i.ID, i.Status, i.Amount, i.AmountReceived, i.Currency,
		i.Metadata, i.Created.Format(time.RFC3339), last, action, i.Replayed)
}

func wantIntent(o object, replayed bool) string {
	i := payments.Intent{
		ID: o.text("id"), Status: payments.Status(o.text("status")), Amount: o.number("amount"), AmountReceived: o.number("amount_received"),
		Currency: o.text("currency"), Metadata: o.metadata(), Created: time.Unix(o.number("created"), 0).UTC(), Replayed: replayed,
	}
	if last := o.object("last_payment_error"); last != nil {
		i.LastError = &payments.Decline{Code: last.text("code"), DeclineCode: last.text("decline_code"), Message: last.text("message")}
	}
	text := gotIntent(i)
	if action := o.object("next_action"); action != nil && i.Status == payments.StatusRequiresAction {
		text = strings.Replace(text, "action:", fmt.Sprintf("action:%q %q", action.text("type"), o.text("client_secret")), 1)
	}
	return text
}

func gotRefund(r payments.Refund) string {
	return fmt.Sprintf("%s %s %d %s %s %s %s %v %s", r.ID, r.Status, r.Amount, r.Currency, r.IntentID, r.Reason, r.FailureReason,
		r.Metadata, r.Created.Format(time.RFC3339))
}

func wantRefund(o object) string {
	return gotRefund(payments.Refund{
		ID: o.text("id"), Status: payments.RefundStatus(o.text("status")), Amount: o.number("amount"), Currency: o.text("currency"),
		IntentID: o.text("payment_intent"), Reason: o.text("reason"), FailureReason: o.text("failure_reason"), Metadata: o.metadata(),
		Created: time.Unix(o.number("created"), 0).UTC(),
	})
}

func gotDispute(d payments.Dispute) string { return fmt.Sprintf("%+v", d) }

func wantDispute(o object) string {
	return gotDispute(payments.Dispute{
		ID: o.text("id"), Status: o.text("status"), Amount: o.number("amount"), Currency: o.text("currency"), Reason: o.text("reason"),
		IntentID: o.text("payment_intent"),
	})
}

func gotEvent(e payments.ProviderEvent) string {
	return fmt.Sprintf("%s %s %s %s %t %v", e.ID, e.Type, e.ObjectID, e.IntentID, e.NamesIntent, e.Metadata)
}

// wantEvent follows from the documentation of events: the object of a payment states its intent, which is null
// if it has none. Before version 2018-02-06 there were no intents, and objects lack the member.
func wantEvent(e object) string {
	about := e.object("data").object("object")
	want := payments.ProviderEvent{ID: e.text("id"), Type: e.text("type")}
	switch about.text("object") {
	case "payment_intent":
		want.IntentID, want.NamesIntent, want.Metadata = about.text("id"), true, about.metadata()
	case "charge", "refund", "dispute":
		want.ObjectID, want.IntentID, want.Metadata = about.text("id"), about.text("payment_intent"), about.metadata()
		want.NamesIntent = about.has("payment_intent")
	}
	return gotEvent(want)
}

// signed returns an event as the provider delivers it.
func signed(event []byte) (payload []byte, signature string) {
	now := time.Now()
	return event, fmt.Sprintf("t=%d,v1=%s", now.Unix(), stripetest.Sign(webhookSecret, event, now))
}
