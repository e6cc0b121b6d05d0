package crash_test

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/stretchr/testify/require"
)

// flow is a way through the program that the matrix breaks: what is ordered,
// how far an earlier run came, and who goes on from there.
type flow struct {
	name   string
	card   string
	status int    // of the final answer
	died   string // the provider's call at which the first process was killed; "" for a fresh order
	dying  moment
	by     actor // the victim
	refund bool  // of an order that is paid before
}

// actor is who makes a run: one that is broken, or one that recovers.
type actor string

const (
	retry     actor = "retry"     // a client
	completer actor = "completer" // orders completer
	webhook   actor = "webhook"   // the provider, telling of its payment
)

const (
	visa       = "pm_card_visa"
	mastercard = "pm_card_mastercard"
	declining  = "pm_card_chargeDeclined"

	// spent stands for a card that is used elsewhere between the two calls, so
	// that the provider refuses to confirm the payment, which could still succeed:
	// it has to be cancelled before the order fails (R23).
	spent = "spent"
)

func flows() []flow {
	const paid, declined, refused = http.StatusCreated, http.StatusPaymentRequired, http.StatusUnprocessableEntity
	return []flow{
		{name: "paid", card: visa, status: paid, by: retry},
		{name: "declined", card: declining, status: declined, by: retry},

		// Left at order_created; at charge_created; and there, with the money moved.
		{name: "retry-of-created", card: visa, status: paid, died: createIntent, dying: before, by: retry},
		{name: "retry-of-unconfirmed", card: visa, status: paid, died: confirmIntent, dying: before, by: retry},
		{name: "retry-of-charged", card: visa, status: paid, died: confirmIntent, dying: after, by: retry},
		{name: "retry-of-declined", card: declining, status: declined, died: confirmIntent, dying: after, by: retry},
		{name: "retry-of-refused", card: spent, status: refused, died: confirmIntent, dying: before, by: retry},
		{name: "completer-of-created", card: visa, status: paid, died: createIntent, dying: before, by: completer},
		{name: "completer-of-unconfirmed", card: visa, status: paid, died: confirmIntent, dying: before, by: completer},
		{name: "completer-of-charged", card: visa, status: paid, died: confirmIntent, dying: after, by: completer},
		{name: "webhook-of-created", card: visa, status: paid, died: createIntent, dying: after, by: webhook},
		{name: "webhook-of-charged", card: visa, status: paid, died: confirmIntent, dying: after, by: webhook},

		// A refund, and one that was left before the money went back, or behind.
		{name: "refunded", card: visa, status: paid, by: retry, refund: true},
		{name: "retry-of-unrefunded", card: visa, status: paid, died: createRefund, dying: before, by: retry, refund: true},
		{name: "retry-of-refunded", card: visa, status: paid, died: createRefund, dying: after, by: retry, refund: true},
		{name: "completer-of-refunded", card: visa, status: paid, died: createRefund, dying: after, by: completer, refund: true},
		{name: "webhook-of-refunded", card: visa, status: paid, died: createRefund, dying: after, by: webhook, refund: true},
	}
}

// hasIntent says whether the provider knows of the order's payment, or of the
// refund, when a fault strikes: only then can it tell of it.
func (f flow) hasIntent(boundaries []string, n int, m moment) bool {
	made := createIntent
	if f.refund {
		made = createRefund
	}
	if f.died != "" && (f.died != made || f.dying == after) {
		return true
	}
	for i, name := range boundaries[:n] {
		if name == made && (i+1 < n || m == after) {
			return true
		}
	}
	return false
}

// recoveries are those who can go on from there.
func (f flow) recoveries(boundaries []string, n int, m moment) []actor {
	if f.hasIntent(boundaries, n, m) {
		return []actor{retry, completer, webhook}
	}
	return []actor{retry, completer}
}

// lead brings Ann's key to where the flow begins: a first process is killed
// there, and its lease runs out.
func (s *shop) lead(f flow) {
	s.t.Helper()
	card, spend := f.card, func() {}
	if card == spent {
		card, spend = s.spendable()
	}
	s.request = params(s.ann.email, card)
	if f.refund {
		s.sell()
	}
	if f.died == "" {
		return
	}
	b := &border{}
	first := s.start(s.behind(b), "serve")
	base := first.address()
	a := newAmbush(0, f.died, f.dying, kill)
	a.victim <- first
	b.watch(a, "")
	heard := s.order(base, s.ann, s.request)
	require.Zero(s.t, heard.status, "the first process should have died: %v", heard)
	s.expire()
	spend()
}

// sell makes a paid order of Ann's, and her request one for a part of it back.
func (s *shop) sell() {
	s.t.Helper()
	shop := s.start(s.direct(), "serve")
	paid := send(shop.address(), http.MethodPost, s.ann.path, s.ann, s.request, http.Header{"Idempotency-Key": {"the-order-of-the-refund"}})
	require.Equal(s.t, http.StatusCreated, paid.status, "%v", paid)
	shop.kill()
	s.ann.path = paid.location + "/refunds"
	s.request = `{"amount":700}`
}

// run is an actor's work on the key, under way.
type run struct {
	base    string            // where it serves; "" for a command
	done    chan answer       // what it ended with
	allowed func(answer) bool // whether it may end so, if others did the work
}

// begin lets the flow's actor go, in a process whose every exchange passes b,
// where a waits for it.
func (s *shop) begin(by actor, b *border, a *ambush) *run {
	s.t.Helper()
	environ := s.behind(b)
	if by == completer {
		// The pass begins with its first look at the keys. Of one key, for the next
		// look would come at any time.
		b.watch(a, "idempotency_keys")
		child := s.start(environ, "completer", "--limit", "1")
		a.victim <- child
		r := &run{done: make(chan answer, 1), allowed: func(a answer) bool { return a.exitCode == 0 || a.exitCode == 1 }}
		go func() { r.done <- exit(child) }()
		return r
	}
	child := s.start(environ, "serve")
	r := &run{base: child.address(), done: make(chan answer, 1)}
	a.victim <- child
	b.watch(a, "")
	if by == webhook {
		r.allowed = func(a answer) bool { return a.status == http.StatusOK || a.later() }
		event := s.event()
		go func() { r.done <- event.send(r.base) }()
		return r
	}
	r.allowed = func(a answer) bool { return a.isFinal() || a.later() }
	go func() { r.done <- order(r.base, s.ann, s.request) }()
	return r
}

// exit is the end of a command, as an answer.
func exit(c *child) answer {
	code, ended := c.wait()
	if !ended {
		return answer{exitCode: -2, err: errors.New("the command does not end")}
	}
	return answer{exitCode: code, err: fmt.Errorf("exit code %d\n%s", code, c.log.tail())}
}
