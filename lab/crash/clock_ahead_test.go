package crash_test

import (
	"fmt"
	"strings"
	"testing"
)

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
           last_run_at        = last_run_at + interval '1 hour',
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

const runs = "SELECT attempt::text FROM idempotency_keys WHERE idempotency_key = $1"

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
		h.command("keys", "retry", idempotencyKey, "--account", h.account.id.String(), "--by", "ann", "--reason", "clock")
	}
	if after := h.query(runs, idempotencyKey); after[0] == before[0] {
		wrong = append(wrong, fmt.Sprintf("no run of the key after the %s, because of a time in the future (R8)", c.recovery))
	}
	return wrong
}
