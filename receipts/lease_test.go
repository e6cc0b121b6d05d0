package receipts_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/receipts"
)

func TestReceiptThatKillsItsWorkersIsGivenUp(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	worker := shop.worker(t, mailerFunc(func(context.Context, receipts.Message) error {
		return errors.New("must not be called")
	}), func(c *receipts.Config) { c.MaxAttempts = 3 })
	shop.sell(t, "jane@example.com")
	shop.exec(t, `UPDATE staged_jobs SET attempt = 3`) // taken three times, never settled

	pass(t, worker, receipts.Result{Dead: 1})
	require.Contains(t, shop.jobs(t)[0].LastError, "no attempt ever came to an end")
}

func TestNoConnectionIsHeldWhileSending(t *testing.T) {
	t.Parallel()
	shop := newShop(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	shop.sell(t, "jane@example.com")
	worker := shop.worker(t, mailerFunc(func(ctx context.Context, _ receipts.Message) error {
		var open int // transactions of this database, but for the one that asks
		err := shop.pool.QueryRow(ctx, `
			SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()`).Scan(&open)
		if err == nil && open != 0 {
			err = errors.New("a transaction is open")
		}
		return err
	}))
	pass(t, worker, receipts.Result{Sent: 1}) // would wait for ever for the only connection
}

func TestLeaseKeepsOthersAway(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	other := shop.worker(t, mailerFunc(func(context.Context, receipts.Message) error { return nil }))
	shop.sell(t, "jane@example.com")
	var meanwhile receipts.Result
	worker := shop.worker(t, mailerFunc(func(ctx context.Context, _ receipts.Message) (err error) {
		meanwhile, err = other.RunOnce(ctx)
		return err
	}))
	pass(t, worker, receipts.Result{Sent: 1})
	require.Equal(t, receipts.Result{}, meanwhile)
}

func TestWorkerWhoseLeaseRanOutChangesNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		situation string
		late      error // how the late attempt ends
	}{
		{"late success", nil},
		{"late failure", errors.New("no")},
		{"late refusal", receipts.ErrPermanent},
	} {
		t.Run(test.situation, func(t *testing.T) {
			t.Parallel()
			shop := newShop(t)
			other := shop.worker(t, mailerFunc(func(context.Context, receipts.Message) error { return errors.New("the other") }))
			shop.sell(t, "jane@example.com")
			var meanwhile receipts.Result
			worker := shop.worker(t, mailerFunc(func(ctx context.Context, _ receipts.Message) error {
				_, err := shop.pool.Exec(ctx, makeDue)
				if err == nil {
					meanwhile, err = other.RunOnce(ctx)
				}
				return errors.Join(err, test.late)
			}))
			pass(t, worker, receipts.Result{Unsettled: 1})
			require.Equal(t, receipts.Result{Retried: 1}, meanwhile)

			jobs := shop.jobs(t)
			require.Len(t, jobs, 1)
			require.Equal(t, 2, jobs[0].Attempt)
			require.Equal(t, "the other", jobs[0].LastError)
			require.False(t, jobs[0].Dead)
		})
	}
}

func TestWorkerKilledBetweenAcceptAndDeleteSendsTheSameMailAgain(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	server := newMailServer(t, script{})
	order := shop.sell(t, "jane@example.com")

	killed, err := pgxpool.NewWithConfig(t.Context(), shop.pool.Config())
	require.NoError(t, err)
	mailer := newSMTP(t, server.url())
	victim, err := receipts.NewWorker(killed, mailerFunc(func(ctx context.Context, message receipts.Message) error {
		defer killed.Close()
		return mailer.Send(ctx, message)
	}), receipts.Config{From: "shop@example.com", Concurrency: 1}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	pass(t, victim, receipts.Result{Unsettled: 1})

	worker := shop.worker(t, mailer)
	pass(t, worker, receipts.Result{}) // the dead worker's lease
	shop.exec(t, makeDue)              // runs out
	pass(t, worker, receipts.Result{Sent: 1})
	require.Empty(t, shop.jobs(t))
	require.Len(t, server.mails(), 2)
	for _, got := range server.mails() {
		require.Equal(t, "<receipt."+order.String()+"@example.com>", got.messageID(t))
	}
}
