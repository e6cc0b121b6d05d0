package orders_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"example.com/orders-api/idempotency"
)

// suspendableContext is a step's context on a machine that may be suspended for a day: its
// deadline has passed, but its timer stood still.
type suspendableContext struct {
	context.Context
	deadline  time.Time
	suspended *atomic.Bool
}

func (c suspendableContext) Deadline() (time.Time, bool) {
	if c.suspended.Load() {
		return c.deadline.Add(-24 * time.Hour), true
	}
	return c.deadline, true
}

// The machine is suspended between the read and the call that moves money. The call is not
// sent: another run may have made it by then.
func TestMachineSuspended(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare step
		read    string // the machine is suspended when its response arrives
		run     func(want string) step
		outcome string
		calls   string
	}{
		"before the refund":  {create("201"), listRefunds, refund, "503 unavailable, 1s", "list 200"},
		"before the confirm": {stopBefore(confirm), getIntent, retry, "503 outcome unknown, 1s", "get 200"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suspended := &atomic.Bool{}
			f := newFixture(t, options{onStep: func(ctx context.Context, _ idempotency.StepStart) (context.Context, func(idempotency.StepEnd)) {
				return suspendableContext{ctx, time.Now().Add(10 * time.Second).Round(0), suspended}, func(idempotency.StepEnd) {}
			}})
			f.do(test.prepare)
			f.transport.reset()
			f.do(after(test.read, func(*fixture) { suspended.Store(true) }), test.run(test.outcome), expectCalls(test.calls))
			suspended.Store(false)
			f.do(retry("201"))
		})
	}
}
