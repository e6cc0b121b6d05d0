package crash_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
)

// flow is a path through the program: what is requested, where an earlier run crashed,
// and which actor continues.
type flow struct {
	name        string
	card        string
	status      int    // of the final response
	crashedAt   string // the provider call at which the first process was killed; "" for a fresh request
	crashMoment moment
	actor       actor // starts the run that the fault hits
	request     about // what the request is about
	old         bool  // the charge window is over when the flow begins

	changed change // what has changed since the final response; "" if there is none when the flow begins

	waiting   bool       // an earlier response was that the customer must approve the payment
	acted     customer   // what the customer did after that
	customers []customer // what the customer does when the fault is triggered, in turns
}

// about is an existing order, or none if the request creates one.
type about string

const (
	refundOf about = "refund" // of a paid order
	cancelOf about = "cancel" // of an order to which card, crashedAt and waiting refer
)

// actor starts a run: that of the fault, or the recovery.
type actor string

const (
	retry     actor = "retry"     // a client's request
	completer actor = "completer" // orders completer
	webhook   actor = "webhook"   // an event of the provider about the payment or the refund
	poll      actor = "poll"      // a client's GET of the key's status
	worker    actor = "worker"    // orders worker --once
	reconcile actor = "reconcile" // orders reconcile
	fix       actor = "fix"       // orders reconcile --fix
)

// commands are the arguments of the actors that are commands.
var commands = map[actor][]string{
	completer: {"completer"}, worker: {"worker", "--once"}, reconcile: {"reconcile"}, fix: {"reconcile", "--fix"},
}

const (
	visa       = "pm_card_visa"
	mastercard = "pm_card_mastercard"
	declining  = "pm_card_chargeDeclined"

	challenging = "pm_card_threeDSecure2Required"

	failingRefunds = "pm_card_refundFail"

	// usedElsewhere is a card that another payment uses up between create and confirm.
	// The provider refuses the confirm, but the intent could still succeed, so it must
	// be cancelled before the order fails (R23).
	usedElsewhere = "usedElsewhere"
)

// flows returns those of the program, without refunds if the shop has deleted the operation.
func flows() []flow {
	return slices.DeleteFunc(allFlows(), func(f flow) bool { return !f.exists() })
}

func (f flow) exists() bool {
	_, err := os.Stat(filepath.Join("..", "..", "orders", "refunds"))
	return f.request != refundOf || err == nil
}

func allFlows() []flow {
	const paid, declined, refused, canceled = http.StatusCreated, http.StatusPaymentRequired, http.StatusUnprocessableEntity, http.StatusOK
	decisions := []customer{approves, declines, paysAnew}
	return []flow{
		{name: "paid", card: visa, status: paid, actor: retry},
		{name: "declined", card: declining, status: declined, actor: retry},

		// "created" is at order_created. "unconfirmed", "charged", "declined" and
		// "refused" are at charge_created, before or after the confirm.
		{name: "retry-of-created", card: visa, status: paid, crashedAt: createIntent, crashMoment: before, actor: retry},
		{name: "retry-of-unconfirmed", card: visa, status: paid, crashedAt: confirmIntent, crashMoment: before, actor: retry},
		{name: "retry-of-charged", card: visa, status: paid, crashedAt: confirmIntent, crashMoment: after, actor: retry},
		{name: "retry-of-declined", card: declining, status: declined, crashedAt: confirmIntent, crashMoment: after, actor: retry},
		{name: "retry-of-refused", card: usedElsewhere, status: refused, crashedAt: confirmIntent, crashMoment: before, actor: retry},
		{name: "completer-of-created", card: visa, status: paid, crashedAt: createIntent, crashMoment: before, actor: completer},
		{name: "completer-of-unconfirmed", card: visa, status: paid, crashedAt: confirmIntent, crashMoment: before, actor: completer},
		{name: "completer-of-charged", card: visa, status: paid, crashedAt: confirmIntent, crashMoment: after, actor: completer},
		{name: "webhook-of-created", card: visa, status: paid, crashedAt: createIntent, crashMoment: after, actor: webhook},
		{name: "webhook-of-charged", card: visa, status: paid, crashedAt: confirmIntent, crashMoment: after, actor: webhook},

		{name: "action", card: challenging, status: declined, actor: retry, customers: decisions},
		{name: "retry-of-waiting", card: challenging, status: declined, waiting: true, actor: retry, customers: decisions},
		{name: "webhook-of-approved", card: challenging, status: paid, waiting: true, acted: approves, actor: webhook, customers: []customer{approves}},
		{name: "webhook-of-unapproved", card: challenging, status: declined, waiting: true, acted: declines, actor: webhook, customers: []customer{paysAnew, leaves}},
		{name: "poll-of-approved", card: challenging, status: declined, waiting: true, acted: approves, actor: poll, customers: []customer{approves}},
		{name: "poll-of-old-waiting", card: challenging, status: refused, waiting: true, actor: poll, old: true, customers: []customer{approves, leaves, paysAnew}},
		{name: "completer-of-old-waiting", card: challenging, status: refused, waiting: true, actor: completer, old: true, customers: []customer{approves, leaves, paysAnew}},

		// The charge window is over (R24).
		{name: "completer-of-old-created", card: visa, status: refused, crashedAt: createIntent, crashMoment: after, actor: completer, old: true},
		{name: "retry-of-old-unconfirmed", card: visa, status: refused, crashedAt: confirmIntent, crashMoment: before, actor: retry, old: true},
		{name: "webhook-of-old-charged", card: visa, status: paid, crashedAt: confirmIntent, crashMoment: after, actor: webhook, old: true},

		// "unrefunded" is before the refund's creation at the provider, "refunded"
		// after it.
		{name: "refunded", card: visa, status: paid, actor: retry, request: refundOf},
		{name: "retry-of-unrefunded", card: visa, status: paid, crashedAt: createRefund, crashMoment: before, actor: retry, request: refundOf},
		{name: "retry-of-refunded", card: visa, status: paid, crashedAt: createRefund, crashMoment: after, actor: retry, request: refundOf},
		{name: "completer-of-refunded", card: visa, status: paid, crashedAt: createRefund, crashMoment: after, actor: completer, request: refundOf},
		{name: "webhook-of-refunded", card: visa, status: paid, crashedAt: createRefund, crashMoment: after, actor: webhook, request: refundOf},

		{name: "cancel", card: challenging, status: canceled, waiting: true, actor: retry, request: cancelOf, customers: decisions},
		{name: "cancel-of-unconfirmed", card: visa, status: canceled, crashedAt: confirmIntent, crashMoment: before, actor: retry, request: cancelOf},
		{name: "cancel-of-charged", card: visa, status: refused, crashedAt: confirmIntent, crashMoment: after, actor: retry, request: cancelOf},
		// The cancel has crashed after its first transaction, and the completer resumes the order.
		{name: "completer-of-canceled", card: visa, status: canceled, crashedAt: confirmIntent, crashMoment: before, actor: completer, request: cancelOf},

		// After the response.
		{name: "worker-of-event", card: visa, status: paid, changed: nothing, actor: worker},
		{name: "worker-of-dashboard-refund", card: visa, status: paid, changed: refundedAtDashboard, actor: worker},
		{name: "worker-of-late-failure", card: failingRefunds, status: paid, request: refundOf, changed: refundFailed, actor: worker},
		{name: "reconcile-of-dashboard-refund", card: visa, status: paid, changed: refundedAtDashboard, actor: reconcile, old: true},
		{name: "fix-of-dashboard-refund", card: visa, status: paid, changed: refundedAtDashboard, actor: fix, old: true},
	}
}

func (f flow) age() time.Duration {
	if f.old {
		return oldAge
	}
	return 0
}

// providerKnows reports whether the provider has the payment or the refund when the
// fault is triggered, and so can send an event.
func (f flow) providerKnows(boundaries []string, n int, m moment) bool {
	creation := createIntent
	if f.request == refundOf {
		creation = createRefund
	}
	if f.waiting || f.crashedAt != "" && (f.crashedAt != creation || f.crashMoment == after) {
		return true
	}
	for i, name := range boundaries[:n] {
		if name == creation && (i+1 < n || m == after) {
			return true
		}
	}
	return false
}

func (f flow) recoveries(boundaries []string, n int, m moment) []actor {
	switch {
	case f.actor == poll:
		return []actor{poll, completer}
	case f.changed == nothing:
		return []actor{worker}
	case f.actor == reconcile, f.actor == fix:
		return []actor{f.actor, worker}
	case f.changed != "":
		return []actor{worker, webhook}
	case f.request == cancelOf: // no event is about the key of a cancel
		return []actor{retry, completer}
	case f.providerKnows(boundaries, n, m):
		return []actor{retry, completer, webhook}
	default:
		return []actor{retry, completer}
	}
}

// setup brings the key to where the flow begins. For a crash, it kills a first process
// there and expires its lease.
func (h *harness) setup(f flow) {
	h.t.Helper()
	card, useUp := f.card, func() {}
	if card == usedElsewhere {
		card, useUp = h.singleUseCard()
	}
	h.params = orderParams(h.account.email, card)
	if f.changed != "" {
		h.openShop()
	}
	switch f.request {
	case refundOf:
		h.createPaidOrder()
	case cancelOf:
		h.account.key = orderKey
		defer h.cancelOrder(f)
	}
	if f.waiting {
		got := h.post(h.bystander().url(), h.account, h.params)
		require.Equal(h.t, http.StatusAccepted, got.status, "%v", got)
		h.act(f.acted)
		h.expireLeases()
	}
	if f.old {
		defer func() {
			h.age(oldAge)
			if f.waiting {
				h.moveLastRun(6 * time.Minute)
			}
		}()
	}
	if f.changed != "" {
		h.change(f)
	}
	if f.crashedAt == "" {
		return
	}
	h.crash(f.crashedAt, f.crashMoment)
	useUp()
}

// crash sends the account's request to a process that is killed at a call to the provider.
func (h *harness) crash(call string, m moment) {
	h.t.Helper()
	exchanges := &interceptor{}
	first := h.start(h.intercepted(exchanges), "serve")
	url := first.url()
	crash := newFault(0, call, m, kill)
	crash.victim <- first
	exchanges.arm(crash, "")
	got := h.post(url, h.account, h.params)
	require.Zero(h.t, got.status, "the first process should have been killed: %v", got)
	h.expireLeases()
}

// cancelOrder makes the case's request a cancel of the account's order.
func (h *harness) cancelOrder(f flow) {
	h.t.Helper()
	ids := h.query("SELECT id::text FROM orders WHERE account_id = $1", h.account.id)
	require.Len(h.t, ids, 1)
	h.account.path += "/" + ids[0] + "/cancel"
	h.account.key, h.params = idempotencyKey, cancelParams
	if f.actor == completer {
		h.crash(readIntent, before)
		// The completer would run both keys at once, in no order. It resumes the order first.
		_, err := h.pool.Exec(h.t.Context(), "UPDATE idempotency_keys SET updated_at = now() WHERE idempotency_key = $1", idempotencyKey)
		require.NoError(h.t, err)
	}
}

// moveLastRun sets the age of the last run: within the time after which the completer
// runs a waiting key again, but after the grace.
func (h *harness) moveLastRun(age time.Duration) {
	h.t.Helper()
	_, err := h.pool.Exec(h.t.Context(), "UPDATE idempotency_keys SET updated_at = now() - $1::interval", age)
	require.NoError(h.t, err)
}

// createPaidOrder makes the case's request a refund of a part of a paid order.
func (h *harness) createPaidOrder() {
	h.t.Helper()
	paid := send(h.bystander().url(), http.MethodPost, h.account.path, h.account, h.params, http.Header{"Idempotency-Key": {orderKey}})
	require.Equal(h.t, http.StatusCreated, paid.status, "%v", paid)
	h.account.path = paid.location + "/refunds"
	h.params = `{"amount":700}`
}

type victim struct {
	exchanges *interceptor
	url       string              // of the process; "" for a command
	done      chan response       // the result
	allowed   func(response) bool // whether the result is correct, also if another run finished the key
}

func (h *harness) startVictim(by actor, exchanges *interceptor, f *armedFault) *victim {
	h.t.Helper()
	environ := h.intercepted(exchanges)
	if h.shop != nil {
		h.shop.exchanges = exchanges
	}
	if args := commands[by]; args != nil {
		// The flow of a command begins after the start-up checks: with the list of abandoned
		// keys, with the provider's list of events, or with the time.
		from := "now()"
		switch by {
		case completer:
			from = "idempotency_keys"
		case worker:
			from = "accounts"
		}
		exchanges.arm(f, from)
		child := h.start(environ, args...)
		f.victim <- child
		v := &victim{exchanges: exchanges, done: make(chan response, 1), allowed: func(r response) bool {
			return r.exitCode == 0 || r.exitCode == 1 || r.exitCode == 2 && args[0] == "reconcile" // nothing was compared
		}}
		go func() { v.done <- exit(child) }()
		return v
	}
	child := h.start(environ, "serve")
	v := &victim{exchanges: exchanges, url: child.url(), done: make(chan response, 1)}
	f.victim <- child
	exchanges.arm(f, "")
	if by == webhook {
		v.allowed = func(r response) bool { return r.status == http.StatusOK || r.isRetryable() }
		event := h.webhookEvent()
		go func() { v.done <- event.send(v.url) }()
		return v
	}
	if by == poll {
		v.allowed = func(r response) bool { return r.status == http.StatusOK || r.isRetryable() }
		go func() { v.done <- readStatus(v.url, h.account) }()
		return v
	}
	v.allowed = func(r response) bool { return r.isFinal() || r.isRetryable() || r.isPaidBefore() }
	go func() { v.done <- post(v.url, h.account, h.params) }()
	return v
}

func exit(c *child) response {
	code, ended := c.wait()
	if !ended {
		return response{exitCode: -2, err: errors.New("the command does not end")}
	}
	return response{exitCode: code, err: fmt.Errorf("exit code %d\n%s", code, c.log.tail())}
}
