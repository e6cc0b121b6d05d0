package crash_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

// newerCase is a key of a newer version: no program of this one may change it (R18).
// Then the newer version finishes it.
type newerCase struct {
	testCase
	unknown string // what of the key this version does not know
}

// unknowns are assignments that make a key one of a newer version.
func unknowns() map[string]string {
	return map[string]string{
		"point":     "recovery_point = 'fraud_checked'",
		"operation": "operation = 'create_subscription'",
	}
}

func newerCases(recorded map[string][]string) (cases []newerCase) {
	for _, f := range flows() {
		if f.actor != retry || f.crashedAt != "" || f.waiting || f.status != http.StatusCreated && f.customers == nil {
			continue
		}
		point := 0
		for n, boundary := range recorded[f.name] {
			last := n == len(recorded[f.name])-1
			if last || !commits(boundary) {
				continue
			}
			point++
			for i, by := range []actor{completer, operator, reconcile, retry, poll} {
				for k, unknown := range []string{"point", "operation"} {
					if f.customers != nil && (i+k+point)%2 > 0 { // in turns
						continue
					}
					c := newerCase{testCase{flow: f, n: n + 1, boundary: boundary, moment: after, fault: kill, recovery: by}, unknown}
					if f.customers != nil {
						c.customer, c.late = approves, true
					}
					cases = append(cases, c)
				}
			}
		}
	}
	return cases
}

func (c newerCase) String() string {
	c.fault += fault("-newer-" + c.unknown)
	return c.testCase.String()
}

func (c newerCase) kind() string { return "newer version, " + string(c.recovery) }

func (c newerCase) run(t testing.TB, program string) (wrong []string, err error) {
	t.Helper()
	h := newHarness(t, program, 0)
	if err := c.leaveUnfinished(h); err != nil {
		return nil, err
	}
	h.expireLeases()
	url := h.bystander().url()

	known := h.query("SELECT format('recovery_point = %L, operation = %L', recovery_point, operation) FROM idempotency_keys WHERE finished_at IS NULL")
	require.Len(t, known, 1)
	h.rewrite("UPDATE idempotency_keys SET " + unknowns()[c.unknown] + " WHERE finished_at IS NULL")
	if c.recovery == operator {
		h.rewrite("UPDATE idempotency_keys SET action_required_at = NULL WHERE finished_at IS NULL")
	}
	tables := []string{"idempotency_keys", "orders", "refunds"}
	rowsBefore, callsBefore := h.rowsOf(tables...), h.writingCalls()
	wrong = append(wrong, c.meet(h, url)...)
	if rows := h.rowsOf(tables...); !slices.Equal(rowsBefore, rows) {
		wrong = append(wrong, fmt.Sprintf("the %s changed rows of a newer version (R18):\n%s\nbecame\n%s", c.recovery, strings.Join(rowsBefore, "\n"), strings.Join(rows, "\n")))
	}
	if calls := h.writingCalls(); calls != callsBefore {
		wrong = append(wrong, fmt.Sprintf("the %s changed an object of the provider (R18)", c.recovery))
	}

	h.rewrite("UPDATE idempotency_keys SET " + known[0] + " WHERE finished_at IS NULL")
	wrong = append(wrong, h.verifyFinal(c.testCase, url)...)
	return append(wrong, h.violations()...), nil
}

// meet lets a program of this version meet the key. A command may fail.
func (c newerCase) meet(h *harness, url string) (wrong []string) {
	h.t.Helper()
	switch c.recovery {
	case completer:
		exit(h.start(h.direct(), "completer"))
	case operator:
		h.command("keys", "retry", idempotency.KeyID(h.account.id, idempotencyKey).String(), "--by", "ann", "--reason", "newer version")
	case reconcile:
		h.command("reconcile", "--fix")
	case retry:
		if got := h.post(url, h.account, h.params); got.status != http.StatusServiceUnavailable {
			wrong = append(wrong, fmt.Sprintf("the response for a key of a newer version: %v", got))
		}
	case poll:
		if got := h.poll(url); got.status != http.StatusOK && !got.isRetryable() {
			wrong = append(wrong, fmt.Sprintf("the status of a key of a newer version: %v", got))
		}
	}
	return wrong
}

func (h *harness) writingCalls() (n int) {
	for _, r := range h.stripe.Requests() {
		if r.Method == http.MethodPost {
			n++
		}
	}
	return n
}
