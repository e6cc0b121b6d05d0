package orders_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

// suspendableContext is the context of a step on a machine that may be suspended for a
// day. Its deadline has passed, but its timer stood still.
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

// The machine is suspended for a day between the read and the call that moves money:
// the call is not sent. Another run may have made it by then.
func TestMachineSuspended(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		after string // the call during whose response the machine is suspended
		run   func(*paidOrder) (idempotency.Result, error)
		want  string
		calls string
	}{
		"before the refund": {
			after: "list",
			run:   func(p *paidOrder) (idempotency.Result, error) { return p.createRefund(oneRefund, `{}`) },
			want:  "unavailable 1s", calls: "list 200",
		},
		"before the confirm": {
			after: "get",
			run: func(p *paidOrder) (idempotency.Result, error) {
				f := p.withKey(p.t, "an-interrupted-order-1")
				f.interrupt(confirmEndpoint, visa)
				return f.create(visa)
			},
			want: "unknown 1s", calls: "get 200",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suspended := &atomic.Bool{}
			f := newFixture(t, options{onStep: func(ctx context.Context, _ idempotency.StepStart) (context.Context, func(idempotency.StepEnd)) {
				return suspendableContext{ctx, time.Now().Add(10 * time.Second).Round(0), suspended}, func(idempotency.StepEnd) {}
			}})
			p := f.createPaid(visa)
			f.transport.intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				if callName(req) == test.after {
					suspended.Store(true)
				}
				return resp, err
			})
			require.Equal(t, test.want, outcomeOf(test.run(p)))
			require.Equal(t, test.calls, f.transport.calls())

			suspended.Store(false)
			f.transport.intercept(nil)
			if test.after == "get" {
				require.Equal(t, "201", outcomeOf(f.withKey(t, "an-interrupted-order-1").create(visa)))
			} else {
				require.Equal(t, "201", outcomeOf(p.createRefund(oneRefund, `{}`)))
			}
		})
	}
}
