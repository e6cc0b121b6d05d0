package crash_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments/stripetest"
)

// lostCase is a failover that loses rows. At the boundary, the last transactions of the
// victim are lost, and all later ones of every account. The process is killed, or it
// continues with what it knows (hold).
type lostCase struct {
	testCase
	lost     int // transactions of the victim
	plan     plan
	noSearch bool // of the provider: only a repeated create can find a charge
}

// plan is what happens after the rows are lost.
type plan struct {
	name  string
	first time.Duration // when the clients retry
	away  bool          // the provider is unavailable for that retry
	then  time.Duration // after the first retry, when actor continues
	actor actor
	fix   bool // reconcile --lost-rows --fix runs before the first retry
	plain bool // half of its cases run in an account without a search, because creates are still sent
	late  bool // the order may end unpaid, because the charge window or an operator ends it

	// forgotten means that the provider forgets its keys between the two runs. Then an order whose intent is
	// not charged may get another one, under the same provider keys.
	forgotten bool
}

const operator actor = "operator" // an operator's command

func plans() []plan {
	const ended = oldAge // after the charge window
	return []plan{
		{name: "retry", first: 22*time.Hour + 50*time.Minute},
		{name: "resumed-soon", first: 10 * time.Minute, away: true, then: 10 * time.Minute, plain: true},
		{name: "resumed-late", first: 22 * time.Hour, away: true, then: 3 * time.Hour, late: true},
		{name: "resumed-after-the-window", first: time.Hour, away: true, then: ended, late: true},
		{name: "resolved", first: 10 * time.Minute, away: true, then: 10 * time.Minute, actor: operator, plain: true, late: true},
		{name: "last-minute", first: 23*time.Hour + 58*time.Minute, away: true, then: 10 * time.Minute, forgotten: true, late: true},
		{name: "reconciled", fix: true, late: true},
		{name: "reconciled-a-day-before", fix: true, first: ended, late: true},
	}
}

func lostCases(recorded map[string][]string) (cases []lostCase) {
	for _, f := range flows() {
		if f.actor != retry || f.crashedAt != "" || f.waiting && f.request != cancelOf {
			continue // the same rows as in the flows of a fresh request
		}
		committed := 0
		for n, boundary := range recorded[f.name] {
			if commits(boundary) {
				committed++
			}
			if !commits(boundary) && !strings.HasPrefix(boundary, "POST ") {
				continue
			}
			for lost := 1; lost <= committed; lost++ {
				for i, p := range plans() {
					turn := n + lost + i
					c := lostCase{testCase: testCase{flow: f, n: n + 1, boundary: boundary, moment: after, fault: kill}, lost: lost, plan: p}
					if turn%2 == 0 {
						c.fault = hold
					}
					if f.customers != nil {
						c.customer = f.customers[len(cases)%len(f.customers)]
						c.late = turn/2%2 == 0 && !p.fix // a customer can act before the rows are lost
					}
					c.noSearch = p.plain && (lost+i)%2 == 0
					if p.away && p.actor == "" {
						actors := f.recoveries(recorded[f.name], n+1, after)
						c.plan.actor = actors[turn%len(actors)]
					}
					cases = append(cases, c)
				}
			}
		}
	}
	return cases
}

// commits reports whether an exchange ends a transaction that changes rows.
func commits(boundary string) bool {
	return !strings.HasPrefix(boundary, "prepare ") && (strings.HasSuffix(boundary, "COMMIT") || strings.HasPrefix(boundary, "UPDATE idempotency_keys "))
}

func (c lostCase) String() string {
	c.recovery = actor(c.plan.name)
	if c.plan.actor != "" && c.plan.actor != operator {
		c.recovery += "-by-" + c.plan.actor
	}
	if c.noSearch {
		c.recovery += "-without-search"
	}
	c.fault = fault(fmt.Sprintf("%s-lost-%d", c.fault, c.lost))
	return c.testCase.String()
}

func (c lostCase) kind() string { return "lost rows, " + c.plan.name }

func (c lostCase) run(t testing.TB, program string) (wrong []string, err error) {
	t.Helper()
	h := newHarness(t, program, c.plan.first+c.plan.then)
	h.noSearch = c.noSearch
	h.setup(c.flow)
	_, err = h.pool.Exec(t.Context(), changeLog)
	require.NoError(t, err)
	victim, armed, err := c.trigger(h)
	defer armed.resume()
	if err != nil {
		return nil, err
	}
	url := h.bystander().url()
	other := orderParams(h.otherAccount.email, visa)
	require.Equal(t, http.StatusCreated, h.post(url, h.otherAccount, other).status)
	h.loseRows(c.lost)
	armed.resume()
	got := h.await(victim)
	keyIsLost := got.status == http.StatusInternalServerError // the client sends its request again
	if c.fault != kill && !victim.allowed(got) && !keyIsLost {
		wrong = append(wrong, fmt.Sprintf("the response after the loss: %v", got))
	}
	canceled := c.flow.request == cancelOf && got.status == http.StatusOK
	h.responses = nil // a client may have received a response that the database has lost

	if c.plan.fix {
		wrong = append(wrong, h.reconcileLostRows(c)...)
	}
	h.age(c.plan.first)
	if c.plan.away {
		wrong = append(wrong, h.retryWhileAway(url, other)...)
		h.age(c.plan.then)
	}
	if c.plan.actor == operator {
		h.resolveKey()
	} else {
		wrong = append(wrong, h.runBy(c.plan.actor, url)...)
	}
	wrong = append(wrong, c.verifyFinal(h, url, other)...)
	if canceled && c.moved(h, h.account) {
		wrong = append(wrong, "an order was charged whose cancel was answered with 200 before the loss (R29)")
	}
	violations := h.violations()
	if c.plan.forgotten {
		violations = slices.DeleteFunc(violations, func(violation string) bool {
			return strings.HasPrefix(violation, moreIntents) || strings.HasPrefix(violation, providerKeyReused)
		})
	}
	return append(wrong, violations...), nil
}

// retryWhileAway makes both clients retry while no call reaches the provider.
func (h *harness) retryWhileAway(url, other string) (wrong []string) {
	h.t.Helper()
	away := h.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Times: stripetest.Always})
	defer away.Release()
	h.expireLeases()
	for _, got := range []response{h.post(url, h.account, h.params), h.post(url, h.otherAccount, other)} {
		needsNoCall := got.status == http.StatusOK || got.isPaidBefore() // a cancel of an order that is final
		if !got.isRetryable() && !got.replayed && !needsNoCall {         // a process that continued may have finished the key
			wrong = append(wrong, fmt.Sprintf("without the provider: %v", got))
		}
	}
	return wrong
}

// resolveKey ends the key, unless that is not possible now.
func (h *harness) resolveKey() {
	h.t.Helper()
	h.command("keys", "resolve", idempotency.KeyID(h.account.id, idempotencyKey).String(), "--by", "ann", "--reason", "lost rows")
}

// reconcileLostRows runs the command, after which the customer must not be able to pay
// for a lost order.
func (h *harness) reconcileLostRows(c lostCase) (wrong []string) {
	h.t.Helper()
	if got := h.command("reconcile", "--lost-rows", "--fix"); got.exitCode > 1 {
		wrong = append(wrong, fmt.Sprintf("reconcile: %v", got))
	}
	if c.customer == "" {
		return wrong
	}
	charges := len(h.stripe.Charges())
	h.act(approves)
	h.act(paysAnew)
	for _, charge := range h.stripe.Charges()[charges:] {
		if h.query("SELECT id::text FROM orders WHERE id::text = $1", charge.OrderID) == nil {
			wrong = append(wrong, "a lost order can be charged after reconcile --lost-rows --fix (R23)")
		}
	}
	return wrong
}

// moved reports whether money moved for the request of an account.
func (c lostCase) moved(h *harness, by account) bool {
	h.t.Helper()
	if c.flow.request == refundOf && by == h.account {
		return len(h.stripe.Refunds()) > 0
	}
	return slices.ContainsFunc(h.intents(), func(i intent) bool {
		return i.Status == "succeeded" && i.Metadata["account_id"] == by.id.String()
	})
}

// verifyFinal retries both requests. Money that moved counts, or reconcile has expired
// its key.
func (c lostCase) verifyFinal(h *harness, url, other string) []string {
	h.t.Helper()
	verify := func(from account, params string, want int) (wrong []string) {
		last, _ := h.retry(c.customer, url, from, params)
		switch {
		case c.plan.fix && c.moved(h, from) && last.isExpired():
			return nil
		case c.moved(h, from) && params == cancelParams:
			want = http.StatusUnprocessableEntity
		case c.moved(h, from):
			want = http.StatusCreated
		case c.plan.late && last.isFinal():
			want = last.status
		}
		if last.status != want {
			wrong = append(wrong, fmt.Sprintf("the final response after the loss: %v", last))
		}
		if c.customer != "" {
			h.act(approves)
			h.act(paysAnew)
		}
		again := h.post(url, from, params)
		if last.isPaidBefore() && again.isPaidBefore() {
			return wrong
		}
		if !again.replayed || again.status != last.status || again.body != last.body {
			wrong = append(wrong, fmt.Sprintf("a replay after the loss: %v", again))
		}
		return wrong
	}
	return append(verify(h.account, h.params, c.flow.status), verify(h.otherAccount, other, http.StatusCreated)...)
}

// changeLog records the versions of all rows from now on, by transaction.
const changeLog = `
CREATE TABLE observed.change (
    n           serial,
    transaction bigint DEFAULT txid_current(),
    account_id  uuid,
    relation    text,
    old         text,
    new         text
);
CREATE FUNCTION observed.log_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observed.change (account_id, relation, old, new)
    VALUES (coalesce(NEW.account_id, OLD.account_id), TG_TABLE_NAME, OLD::text, NEW::text);
    RETURN NULL;
END $$;
CREATE TRIGGER log_change AFTER INSERT OR UPDATE OR DELETE ON idempotency_keys FOR EACH ROW EXECUTE FUNCTION observed.log_change();
CREATE TRIGGER log_change AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION observed.log_change();
CREATE TRIGGER log_change AFTER INSERT OR UPDATE OR DELETE ON refunds FOR EACH ROW EXECUTE FUNCTION observed.log_change();
CREATE TRIGGER log_change AFTER INSERT OR UPDATE OR DELETE ON audit_records FOR EACH ROW EXECUTE FUNCTION observed.log_change();
CREATE TRIGGER log_change AFTER INSERT OR UPDATE OR DELETE ON staged_jobs FOR EACH ROW EXECUTE FUNCTION observed.log_change();

CREATE FUNCTION observed.undo(first integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    change observed.change;
BEGIN
    -- A failover loses a transaction as a whole, although those of two requests may interleave.
    FOR change IN
        SELECT *
          FROM observed.change
         WHERE transaction IN (SELECT transaction FROM observed.change WHERE n >= first)
         ORDER BY n DESC
    LOOP
        EXECUTE format('DELETE FROM %1$I WHERE (account_id, id) = ((%2$L::%1$I).account_id, (%2$L::%1$I).id)',
                       change.relation, coalesce(change.new, change.old));
        IF change.old IS NOT NULL THEN
            EXECUTE format('INSERT INTO %1$I SELECT (%2$L::%1$I).*', change.relation, change.old);
        END IF;
    END LOOP;
END $$`

// loseRows restores the state before the last n transactions of the account.
func (h *harness) loseRows(n int) {
	h.t.Helper()
	firsts := h.query(`
SELECT min(n)::text
  FROM observed.change
 WHERE account_id = $1
 GROUP BY transaction
 ORDER BY min(n) DESC`, h.account.id)
	require.GreaterOrEqual(h.t, len(firsts), n)
	h.rewrite("SELECT observed.undo($1::text::integer)", firsts[n-1])
}

// clockCase is a failover from a primary whose clock was an hour ahead: the times of the
// rows lie in the future. They are no lease (R8), and must not hide the key.
type clockCase struct{ testCase }

func clockCases(recorded map[string][]string) (cases []clockCase) {
	for _, f := range flows() {
		if f.actor != retry || f.crashedAt != "" || f.waiting {
			continue
		}
		for n, boundary := range recorded[f.name] {
			last := n == len(recorded[f.name])-1
			if last || !commits(boundary) && !strings.HasPrefix(boundary, "POST ") {
				continue
			}
			for _, by := range []actor{retry, completer, operator} {
				c := clockCase{testCase{flow: f, n: n + 1, boundary: boundary, moment: after, fault: kill, recovery: by}}
				if f.customers != nil {
					c.customer, c.late = approves, true
				}
				cases = append(cases, c)
			}
		}
	}
	return cases
}

func (c clockCase) String() string {
	c.fault += "-clock-ahead"
	return c.testCase.String()
}

func (c clockCase) kind() string { return "clock ahead, " + string(c.recovery) }

func (c clockCase) run(t testing.TB, program string) (wrong []string, err error) {
	t.Helper()
	h := newHarness(t, program, 0)
	if err := c.leaveUnfinished(h); err != nil {
		return nil, err
	}
	h.rewrite(`
WITH keys_ahead AS (
    UPDATE idempotency_keys
       SET created_at         = created_at + interval '1 hour',
           locked_at          = locked_at + interval '1 hour',
           updated_at         = updated_at + interval '1 hour',
           action_required_at = action_required_at + interval '1 hour'
     WHERE finished_at IS NULL
), refunds_ahead AS (
    UPDATE refunds SET created_at = created_at + interval '1 hour'
)
UPDATE orders
   SET created_at = created_at + interval '1 hour'
 WHERE paid_at IS NULL`)
	h.act(c.customer)
	url := h.bystander().url()
	wrong = append(wrong, c.recoverAtOnce(h, url)...)
	wrong = append(wrong, h.verifyFinal(c.testCase, url)...)
	return append(wrong, h.violations()...), nil
}

const runs = "SELECT runs::text FROM idempotency_keys WHERE idempotency_key = $1"

// recoverAtOnce requires a run although no lease has expired.
func (c clockCase) recoverAtOnce(h *harness, url string) (wrong []string) {
	h.t.Helper()
	before := h.query(runs, idempotencyKey)
	switch c.recovery {
	case retry:
		h.post(url, h.account, h.params)
	case completer:
		h.command("completer")
	case operator:
		leased := h.query("SELECT id::text FROM idempotency_keys WHERE locked_at IS NOT NULL")
		if list := h.command("keys", "list").err.Error(); leased != nil && !strings.Contains(list, leased[0]) {
			wrong = append(wrong, "keys list does not show the key")
		}
		h.command("keys", "retry", idempotency.KeyID(h.account.id, idempotencyKey).String(), "--by", "ann", "--reason", "clock")
	}
	if after := h.query(runs, idempotencyKey); after[0] == before[0] {
		wrong = append(wrong, fmt.Sprintf("no run of the key after the %s, because of a time in the future (R8)", c.recovery))
	}
	return wrong
}
