package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/cmd/internal/tracing"
	"example.com/orders-api/receipts"
)

// worker sends receipts until a signal comes, or makes one pass.
func worker(ctx context.Context, call invocation) error {
	var config boot.Worker
	flags := call.flags()
	once := flags.Bool("once", false, "make one pass over what is due, and fail if something could not be sent")
	every := flags.Duration("every", time.Second, "how often to look for new receipts")
	if err := call.parse(flags, &config); err != nil {
		return err
	}
	if *every <= 0 {
		return wrongUsage(call.name, "--every %s is not a positive duration", *every)
	}
	if err := boot.Load(&config); err != nil {
		return err
	}
	logger := config.Logger(call.stderr)
	traces, err := tracing.Start(ctx, logger)
	if err != nil {
		return err
	}
	defer traces.Stop(ctx)
	pool, err := boot.Pool(ctx, config.Database, logger)
	if err != nil {
		return err
	}
	defer pool.Close()
	w, err := newWorker(config.Mail, pool, traces, logger)
	if err != nil {
		return err
	}
	if *once {
		result, err := w.RunOnce(ctx)
		if err == nil && result.Retried+result.Dead+result.Unsettled > 0 {
			err = fmt.Errorf("receipts not sent: %d to be retried, %d given up, %d unsettled", result.Retried, result.Dead, result.Unsettled)
		}
		return err
	}
	err = w.Run(ctx, *every)
	logger.Info("stopped")
	return err
}

func newWorker(config boot.Mail, pool *pgxpool.Pool, traces *tracing.Tracing, logger *slog.Logger) (*receipts.Worker, error) {
	mailer, err := config.Mailer(logger)
	if err != nil {
		return nil, err
	}
	return receipts.NewWorker(pool, traces.Mailer(mailer), receipts.Config{From: config.From}, logger)
}
