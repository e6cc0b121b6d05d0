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

// maxKeys bounds the keys that are counted. More keys need no other message.
const maxKeys = 1000

// checkKeys looks for keys that wait for an operator or for the completer. They are
// a warning, because the installation itself is correct.
func (c Checker) checkKeys(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger) Result {
	const name = "keys"
	if !c.valid("STRIPE_TIMEOUT", "LOCK_TIMEOUT", "COMPLETER_GRACE", "CHARGE_WINDOW", "KEY_RETENTION", "durations out of order") {
		return skipped(name, "a duration is invalid")
	}
	d := c.Environment.Durations
	engine, err := idempotency.New(pool, idempotency.Config{LockTimeout: d.LockTimeout.Duration, Clock: time.Now, Logger: logger})
	if err != nil {
		return queryFailed(name, err)
	}
	reaper, err := idempotency.NewReaper(engine, idempotency.ReaperConfig{Retention: d.KeyRetention.Duration, Batch: 1})
	if err != nil {
		return queryFailed(name, err)
	}
	stuck, err := engine.Stuck(ctx, d.CompleterGrace.Duration, maxKeys)
	if err != nil {
		return queryFailed(name, err)
	}
	overdue, err := reaper.Overdue(ctx)
	if err != nil {
		return queryFailed(name, err)
	}
	needReview := 0
	for _, key := range stuck {
		if key.NeedsReviewAt != nil {
			needReview++
		}
	}
	var counts, remedies []string
	add := func(n int, format, remedy string) {
		if n > 0 {
			counts, remedies = append(counts, fmt.Sprintf(format, n)), append(remedies, remedy)
		}
	}
	add(needReview, "needing review: %d", "orders keys list shows them, orders keys retry or resolve finishes them")
	add(len(stuck)-needReview, "abandoned: %d", "orders completer finishes them: check that cron starts it")
	add(overdue, "unfinished past KEY_RETENTION: %d", "orders keys show prints the last error")
	if len(counts) > 0 {
		return Result{Warning, name, strings.Join(counts, ", "), strings.Join(remedies, "; ")}
	}
	return ok(name, "none is abandoned, needs review or is unfinished past KEY_RETENTION")
}
