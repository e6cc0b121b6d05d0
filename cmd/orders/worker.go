package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/internal/metrics"
	"example.com/orders-api/receipts"
)

func worker(ctx context.Context, call *invocation) error {
	var config struct {
		setup.DatabaseOnly
		setup.OptionalAdmin
		setup.WorkerMail
	}
	once := call.flags.Bool("once", false, "send the receipts that are due, and fail if one could not be sent")
	every := call.flags.Duration("every", time.Second, "how often to poll for new receipts")
	if err := call.load(&config, "every"); err != nil {
		return err
	}
	logger := config.Logger(call.stderr)
	pool, err := setup.Pool(ctx, config.Database, logger)
	if err != nil {
		return err
	}
	defer pool.Close()
	m := metrics.New(metrics.Config{Pool: pool, Logger: logger, Jobs: receiptGauges})
	mail := setup.Mail(config.WorkerMail)
	mailer, err := mail.Mailer("", logger)
	if err != nil {
		return err
	}
	w, err := receipts.NewWorker(pool, mailer, receipts.Config{From: mail.Sender(), Observe: m.Receipt}, logger)
	if err != nil {
		return err
	}
	if *once {
		result, err := w.RunOnce(ctx)
		retried, failed, lost := result[receipts.Retried], result[receipts.Failed], result[receipts.Lost]
		if err == nil && retried+failed+lost > 0 {
			err = fmt.Errorf("receipts not sent: %d to be retried, %d failed, %d lost", retried, failed, lost)
		}
		return err
	}
	err = runOrRepeat(ctx, call.name, *every, config.AdminAddr, m, logger, func(ctx context.Context) error {
		_, err := w.RunOnce(ctx)
		return err
	})
	if err == nil {
		logger.Info("stopped")
	}
	return err
}

func receiptGauges(ctx context.Context, pool *pgxpool.Pool) ([]metrics.Gauge, error) {
	pending, oldest, failed, err := receipts.ReadStats(ctx, pool)
	return []metrics.Gauge{
		{Name: "receipts_pending", Help: "Receipts that are still to be sent.", Value: float64(pending)},
		{Name: "oldest_receipt_age_seconds", Help: "Age of the oldest pending receipt.", Value: oldest.Seconds()},
		{Name: "receipts_failed", Help: "Receipts that need an operator: they are not tried again.", Value: float64(failed)},
	}, err
}
