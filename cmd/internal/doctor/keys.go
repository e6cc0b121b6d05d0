package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
)

// mostKeys is how many waiting keys are counted: more is no other message.
const mostKeys = 1000

// checkKeys looks for requests that nobody has finished. They wait for a person or
// for the completer, which is no fault of the installation, so it is a warning.
func (e Examination) checkKeys(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger) Finding {
	const about = "keys"
	if !e.usable("STRIPE_TIMEOUT", "LOCK_TIMEOUT", "COMPLETER_GRACE", "KEY_RETENTION", "durations out of order") {
		return notLooked(about, "since the durations are wrong")
	}
	d := e.Environment.Durations
	engine, err := idempotency.New(pool, idempotency.Config{LockTimeout: d.LockTimeout.Duration, Clock: time.Now, Logger: logger})
	if err != nil {
		return failed(about, err)
	}
	reaper, err := idempotency.NewReaper(engine, idempotency.ReaperConfig{Retention: d.KeyRetention.Duration, Batch: 1})
	if err != nil {
		return failed(about, err)
	}
	stuck, err := engine.Stuck(ctx, d.CompleterGrace.Duration, mostKeys)
	if err != nil {
		return failed(about, err)
	}
	overdue, err := reaper.Overdue(ctx)
	if err != nil {
		return failed(about, err)
	}
	review := 0
	for _, key := range stuck {
		if key.NeedsReviewAt != nil {
			review++
		}
	}
	var found, remedies []string
	note := func(n int, what, remedy string) {
		if n > 0 {
			found, remedies = append(found, fmt.Sprintf(what, n)), append(remedies, remedy)
		}
	}
	note(review, "needing review: %d", "orders keys list shows them, orders keys retry or resolve ends them")
	note(len(stuck)-review, "abandoned: %d", "orders completer finishes them: see that cron starts it")
	note(overdue, "unfinished past KEY_RETENTION: %d", "look at why with orders keys show")
	if len(found) > 0 {
		return Finding{Warning, about, strings.Join(found, ", "), strings.Join(remedies, "; ")}
	}
	return good(about, "none waits: none is abandoned, needs review or is overdue")
}
