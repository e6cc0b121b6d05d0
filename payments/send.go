package payments

import (
	"context"
	"math/rand/v2"
	"time"
)

// maxSends bounds the sends of one call. With the default pauses the third goes
// out within 1.5 s of the first answer; a provider that is down for longer is
// the next run's business, under the same key.
const maxSends = 3

// call is one request to Stripe, however often it is sent.
type call struct {
	name     string            // for the log
	key      string            // "" for reads
	intentID string            // "" where there is none yet
	ours     func(Intent) bool // of calls that answer with an intent
}

// callOn is a call about an intent we know: no other may come back.
func callOn(name, key, intentID string) call {
	return call{name: name, key: key, intentID: intentID, ours: func(i Intent) bool { return i.ID == intentID }}
}

// run sends a call until its answer is final or the budget is spent. The worst
// outcome wins: once a send may have had its effect, a later "did not run" is
// about that later send alone. A final answer is taken whenever it comes,
// because one key has one answer.
func (c *Client) run(ctx context.Context, call call, send func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	budget := time.Until(deadline) // the caller may have less than Timeout
	doubt := false
	for n := 1; ; n++ {
		failure := c.exchange(ctx, call, n, budget/2, send)
		if failure == nil {
			return nil
		}
		if doubt && failure.Outcome == NotExecuted {
			failure.Outcome = Unknown
		}
		doubt = failure.Outcome == Unknown
		if n == maxSends || !failure.resendable() || !c.waitToResend(ctx, n, failure.pause, budget/10) {
			return failure
		}
	}
}

// exchange is one send and what came of it; nil means it worked.
//
// One send gets half of the call's budget at most. An idle connection that a
// firewall has silently forgotten swallows everything until the deadline; half
// leaves room for a resend on a fresh one. Less than half would make Unknowns
// of slow confirms, which take up to several seconds of the default 20.
func (c *Client) exchange(ctx context.Context, call call, n int, limit time.Duration, send func(context.Context) error) *Error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ctx, wire := observe(ctx)
	start := time.Now()
	failure := classify(send(ctx), wire, call)
	took := time.Since(start)
	c.logExchange(ctx, call, n, took, wire, failure)
	if c.observe != nil {
		c.observe(Attempt{Call: call.name, Took: took, Err: failure})
	}
	return failure
}

// Attempt is one send of a call and what came of it, for those who measure.
type Attempt struct {
	Call string // create, confirm, get, cancel, refund, get refund, list, list refunds or list all refunds
	Took time.Duration
	Err  *Error // nil when it was answered
}

// waitToResend pauses after send n, for as long as the provider asked for if it
// did. It reports false when the caller gave up, or when less than needed would
// be left afterwards: a send without the time to be answered only makes an
// Unknown of a NotExecuted.
func (c *Client) waitToResend(ctx context.Context, n int, asked, needed time.Duration) bool {
	wait := max(jittered(c.backoff<<(n-1)), asked)
	deadline, _ := ctx.Deadline()
	if time.Until(deadline)-wait < needed {
		return false
	}
	return c.pause(ctx, wait) == nil
}

// jittered picks from the upper half of d, so that callers that failed together
// do not come back together.
func jittered(d time.Duration) time.Duration {
	return d - rand.N(d/2+1) //nolint:gosec // jitter needs no secrecy
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
