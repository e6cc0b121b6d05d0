package receipts_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/receipts"
)

func TestNewWorker_incomplete(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	mailer := mailerFunc(nil)
	logger := slog.New(slog.DiscardHandler)
	good := receipts.Config{From: "shop@example.com"}
	for _, test := range []struct {
		name   string
		create func() (*receipts.Worker, error)
	}{
		{"no pool", func() (*receipts.Worker, error) { return receipts.NewWorker(nil, mailer, good, logger) }},
		{"no mailer", func() (*receipts.Worker, error) { return receipts.NewWorker(pool, nil, good, logger) }},
		{"no logger", func() (*receipts.Worker, error) { return receipts.NewWorker(pool, mailer, good, nil) }},
		{"no sender", func() (*receipts.Worker, error) {
			return receipts.NewWorker(pool, mailer, receipts.Config{}, logger)
		}},
		{"negative concurrency", func() (*receipts.Worker, error) {
			return receipts.NewWorker(pool, mailer, receipts.Config{From: good.From, Concurrency: -1}, logger)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := test.create()
			require.Error(t, err)
		})
	}
	_, err := receipts.NewWorker(pool, mailer, good, logger)
	require.NoError(t, err)
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	total := time.Duration(0)
	for attempt := 1; attempt <= 300; attempt++ {
		delay := receipts.Backoff(attempt)
		middle := 15 * time.Minute
		if attempt <= 10 {
			middle = time.Second << (attempt - 1)
		}
		require.InEpsilon(t, middle, delay, 0.21, "attempt %d", attempt)
		total += delay
	}
	require.InDelta(t, 72, total.Hours(), 3, "about three days")
}
