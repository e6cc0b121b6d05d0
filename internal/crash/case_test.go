package crash_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type testCase struct {
	flow     flow
	n        int    // the number of the boundary, from 1
	boundary string // its name
	moment   moment
	fault    fault
	recovery actor
	customer customer // what the customer does, when the fault is triggered or later
	late     bool     // the customer acts only after the leases have expired
}

func (c testCase) String() string {
	name := fmt.Sprintf("%s/%02d-%s/%s/%s", c.flow.name, c.n, c.moment, c.fault, c.recovery)
	if c.customer != "" {
		name += "/" + string(c.customer)
	}
	if c.late {
		name += "-late"
	}
	return name
}

func (c testCase) side() side {
	if strings.Contains(c.boundary, " /") {
		return provider
	}
	return database
}

func (c testCase) where() string { return string(c.moment) + " " + c.boundary }

func (c testCase) kind() string { return c.flow.name }

var errNotReached = errors.New("the boundary was not reached")

// run executes the case and returns what is wrong. An error means that the fault was
// not triggered.
func (c testCase) run(t testing.TB, program string) (wrong []string, err error) {
	t.Helper()
	h := newHarness(t, program, c.flow.age())
	h.setup(c.flow)
	victim, armed, err := c.trigger(h)
	defer armed.resume()
	if err != nil {
		return nil, err
	}
	if c.fault == pause {
		url := h.bystander().url()
		wrong = append(wrong, h.recover(c, url)...)
		wrong = append(wrong, h.resume(armed, victim)...)
		wrong = append(wrong, h.verifyFinal(c, url)...)
	} else {
		if c.fault == hold {
			armed.resume()
		}
		got := h.await(victim)
		if c.fault != kill && !victim.allowed(got) {
			wrong = append(wrong, fmt.Sprintf("the response after the %s: %v", c.fault, got))
		}
		victim.exchanges.endOutage()
		url := victim.url // the victim itself must work again
		if c.fault == kill || url == "" {
			url = h.bystander().url()
		}
		wrong = append(wrong, h.recover(c, url)...)
		wrong = append(wrong, h.verifyFinal(c, url)...)
	}
	return append(wrong, h.violations()...), nil
}

// trigger starts the victim and returns when the fault is triggered. Then the customer
// acts.
func (c testCase) trigger(h *harness) (*victim, *armedFault, error) {
	h.t.Helper()
	armed := newFault(c.n, "", c.moment, c.fault)
	v := h.startVictim(c.flow.actor, &interceptor{}, armed)
	select {
	case <-armed.triggered:
	case got := <-v.done:
		if !armed.hasTriggered() {
			return v, armed, fmt.Errorf("%w; the result: %v", errNotReached, got)
		}
		v.done <- got // both channels were ready
	case <-time.After(timeout):
		return v, armed, errNotReached
	}
	if !c.late {
		h.act(c.customer)
	}
	return v, armed, nil
}

// leaveUnfinished kills the victim at the boundary, which must leave an unfinished key.
func (c testCase) leaveUnfinished(h *harness) error {
	h.t.Helper()
	h.setup(c.flow)
	victim, armed, err := c.trigger(h)
	if err != nil {
		return err
	}
	h.await(victim)
	if h.unfinishedKeys() == nil {
		return fmt.Errorf("%w: no key is unfinished", errNotReached)
	}
	armed.resume()
	return nil
}

func (h *harness) await(v *victim) response {
	h.t.Helper()
	select {
	case got := <-v.done:
		h.responses = append(h.responses, got)
		return got
	case <-time.After(2 * timeout):
		require.Fail(h.t, "the victim does not end")
		return response{}
	}
}

// recover finishes what the victim left unfinished.
func (h *harness) recover(c testCase, url string) (wrong []string) {
	h.t.Helper()
	if c.recovery == retry {
		_, wrong = h.retry(c.customer, url, h.account, h.params)
		return wrong
	}
	if !h.awaitTransactions() {
		wrong = append(wrong, "a session keeps its transaction open (R21)")
	}
	wrong = append(wrong, h.resumeKey(c, url)...)
	if c.customer != "" && h.unfinishedKeys() != nil { // that run found that the customer must act
		wrong = append(wrong, h.resumeKey(c, url)...)
	}
	for _, key := range h.unfinishedKeys() {
		wrong = append(wrong, fmt.Sprintf("unfinished after the %s: %s", c.recovery, key))
	}
	return wrong
}

// resumeKey expires the leases, lets the customer act, and starts a run of the case's
// actor.
func (h *harness) resumeKey(c testCase, url string) (wrong []string) {
	h.t.Helper()
	h.expireLeases()
	h.act(c.customer)
	return h.runBy(c.recovery, url)
}

// runBy starts a run of an actor that is no retry.
func (h *harness) runBy(by actor, url string) (wrong []string) {
	h.t.Helper()
	switch by {
	case poll: // a client that only polls relies on the completer, if its request crashed
		if !h.eventually(func() bool { return h.poll(url).status == http.StatusOK }) {
			wrong = append(wrong, "the status of the key cannot be read")
		}
		return append(wrong, h.runBy(completer, url)...)
	case completer:
		got := h.command("completer")
		if got.exitCode == 1 && h.params == cancelParams { // the order's key was held when the cancel needed it
			h.expireLeases()
			got = h.command("completer")
		}
		if got.exitCode != 0 {
			wrong = append(wrong, fmt.Sprintf("the completer: %v", got))
		}
	case worker:
		if got := h.command(commands[worker]...); got.exitCode != 0 {
			wrong = append(wrong, fmt.Sprintf("the worker: %v", got))
		}
	case reconcile, fix:
		wrong = append(wrong, h.reconcile(by)...)
	case webhook:
		if got := h.webhookEvent().send(url); got.status != http.StatusOK {
			wrong = append(wrong, fmt.Sprintf("the webhook: %v", got))
		}
		switch {
		case h.shop != nil: // a webhook sends no events
			wrong = append(wrong, h.runBy(worker, url)...)
		case len(h.stripe.Refunds()) > 0: // its job lets the refund's own run record it, and is then repeated
			if got := h.command(commands[worker]...); got.exitCode > 1 {
				wrong = append(wrong, fmt.Sprintf("the worker: %v", got))
			}
		}
	}
	return wrong
}

// resume ends the victim's pause. If its key is finished, the victim has lost it: its
// earlier requests arrive late, and may change no row.
func (h *harness) resume(paused *armedFault, v *victim) (wrong []string) {
	h.t.Helper()
	finished := h.query("SELECT id::text FROM idempotency_keys WHERE recovery_point = 'finished' AND idempotency_key = $1", idempotencyKey) != nil
	rowsBefore := h.allRows()
	paused.resume()
	if got := h.await(v); !v.allowed(got) {
		wrong = append(wrong, fmt.Sprintf("the paused victim's response: %v", got))
	}
	if rows := h.allRows(); finished && !slices.Equal(rowsBefore, rows) {
		wrong = append(wrong, fmt.Sprintf("the paused victim changed rows:\n%s\nbecame\n%s", strings.Join(rowsBefore, "\n"), strings.Join(rows, "\n")))
	}
	return wrong
}

// retry sends an account's request until the response is final. Between two attempts
// it expires the leases, and the customer acts.
func (h *harness) retry(does customer, url string, from account, params string) (last response, wrong []string) {
	h.t.Helper()
	h.eventually(func() bool {
		last = h.post(url, from, params)
		if last.isRetryable() {
			h.expireLeases()
			h.act(does)
		}
		return !last.isRetryable()
	})
	if !last.isFinal() && !last.isPaidBefore() {
		wrong = append(wrong, fmt.Sprintf("the last response to retries: %v", last))
	}
	return last, wrong
}

func (h *harness) verifyFinal(c testCase, url string) []string {
	h.t.Helper()
	last, wrong := h.retry(c.customer, url, h.account, h.params)
	expect := func(what string, got response, ok bool) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf("%s: %v", what, got))
		}
	}
	expect("the final response", last, last.status == c.wantStatus(h))
	if c.customer != "" { // a customer who has the client secret tries once more
		h.act(approves)
		h.act(paysAnew)
	}
	again := h.post(url, h.account, h.params)
	if last.isPaidBefore() {
		expect("the cancel again", again, again.isPaidBefore())
	} else {
		expect("a replay", again, again.replayed && again.status == last.status && again.body == last.body && again.location == last.location)
		other := h.post(url, h.account, orderParams(h.account.email, mastercard))
		expect("the key with a different request", other, other.status == http.StatusUnprocessableEntity && strings.Contains(other.body, "/problems/idempotency-key-reused"))
	}
	if c.flow.request == cancelOf || c.flow.request == "" && last.status == http.StatusCreated {
		// The customer's second tab has another key for the same purchase (R26).
		second := send(url, http.MethodPost, "/v1/orders", h.account, orderParams(h.account.email, visa), http.Header{"Idempotency-Key": {"a-second-key-of-the-purchase"}})
		if last.status == http.StatusOK {
			expect("another key with the reference of a cancelled order", second, second.status == http.StatusCreated)
		} else {
			ids := h.query("SELECT id::text FROM orders WHERE account_id = $1", h.account.id)
			expect("another key with the reference of a paid order", second, second.status == http.StatusUnprocessableEntity &&
				strings.Contains(second.body, "/problems/order-exists") && strings.Contains(second.body, ids[0]))
		}
	}
	next := h.post(url, h.otherAccount, orderParams(h.otherAccount.email, visa))
	expect("an order of another account under the same key", next, next.status == http.StatusCreated)
	for _, id := range h.query("SELECT id::text FROM orders WHERE account_id = $1", h.account.id) {
		own := h.get(url, h.account, "/v1/orders/"+id)
		expect("the order, read by its account", own, own.status == http.StatusOK)
		foreign := h.get(url, h.otherAccount, "/v1/orders/"+id)
		expect("the order, read by another account", foreign, foreign.status == http.StatusNotFound)
	}
	if c.flow.changed != "" {
		wrong = append(wrong, h.verifyChanges(c.flow, url)...)
	}
	return wrong
}
