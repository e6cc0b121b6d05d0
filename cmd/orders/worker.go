package main

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/receipts"
)

// worker is the command: it sends receipts until a signal comes, or makes one
// pass.
func worker(ctx context.Context, args []string, _, stderr io.Writer) error {
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	once := flags.Bool("once", false, "make one pass over what is due and exit")
	every := flags.Duration("every", time.Second, "how often to look for new receipts")
	if err := parse(flags, args, stderr); err != nil {
		return err
	}
	var config boot.Worker
	if err := boot.Load(&config); err != nil {
		return err
	}
	logger := config.Logger(stderr)
	pool, err := boot.Pool(ctx, config.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	w, err := newWorker(config.Mail, pool, logger)
	if err != nil {
		return err
	}
	if *once {
		_, err := w.RunOnce(ctx)
		return err
	}
	return w.Run(ctx, *every)
}

func newWorker(config boot.Mail, pool *pgxpool.Pool, logger *slog.Logger) (*receipts.Worker, error) {
	mailer, err := config.Mailer(logger)
	if err != nil {
		return nil, err
	}
	return receipts.NewWorker(pool, mailer, receipts.Config{From: config.From}, logger)
}
