package receipts_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-smtp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/receipts"
)

func TestStagedReceiptIsSentOnce(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	server := newMailServer(t, script{})
	worker := shop.worker(t, newSMTP(t, server.url()))
	order := shop.sell(t, "jane@example.com")

	pass(t, worker, receipts.Result{Sent: 1})
	pass(t, worker, receipts.Result{})

	require.Empty(t, shop.jobs(t))
	require.Len(t, server.mails(), 1)
	require.Equal(t, []string{"jane@example.com"}, server.mails()[0].to)
	mail := receipts.ParseMail(t, server.mails()[0].raw)
	require.Equal(t, "Receipt for order "+order.String(), mail.Header.Get("Subject"))
	require.Contains(t, mail.Text, "3 x mug Mug, blue\n    500 JPY each, 1500 JPY\n")
	require.Contains(t, mail.Text, "Total: 1500 JPY\n")
}

func TestFailedReceiptComesBackLater(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		situation string
		script    script
		reason    string
	}{
		{
			"recipient refused for now",
			script{onRcpt: func(net.Conn, string) error { return refuse(450, smtp.EnhancedCode{4, 2, 0}, "greylisted") }},
			"greylisted",
		}, {
			"mail refused for now",
			script{onData: func(net.Conn) error { return refuse(452, smtp.EnhancedCode{4, 3, 1}, "disk full") }},
			"disk full",
		}, {
			"sender refused",
			script{onMail: func() error { return refuse(550, smtp.EnhancedCode{5, 7, 1}, "unknown sender") }},
			"unknown sender",
		},
	} {
		t.Run(test.situation, func(t *testing.T) {
			t.Parallel()
			shop := newShop(t)
			server := newMailServer(t, test.script)
			worker := shop.worker(t, newSMTP(t, server.url()))
			shop.sell(t, "jane@example.com")

			for attempt := 1; attempt <= 3; attempt++ {
				pass(t, worker, receipts.Result{Retried: 1})
				pass(t, worker, receipts.Result{}) // not due
				jobs := shop.jobs(t)
				require.Len(t, jobs, 1)
				require.Equal(t, attempt, jobs[0].Attempt)
				require.InDelta(t, attempt, jobs[0].Wait.Hours(), 0.1, "grows with the attempts")
				require.Contains(t, jobs[0].LastError, test.reason)
				shop.exec(t, makeDue)
			}
			require.Empty(t, server.mails())
		})
	}
}

func TestUnreachableServerKeepsTheReceipt(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	shop.sell(t, "jane@example.com")

	pass(t, shop.worker(t, newSMTP(t, "smtp://"+listener.Addr().String())), receipts.Result{Retried: 1})
	require.Contains(t, shop.jobs(t)[0].LastError, "connection refused")

	shop.exec(t, makeDue)
	server := newMailServer(t, script{})
	pass(t, shop.worker(t, newSMTP(t, server.url())), receipts.Result{Sent: 1})
	require.Len(t, server.mails(), 1)
}

func TestRefusedReceiptIsDeadAtOnce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		situation string
		script    script
	}{
		{
			"recipient refused for good",
			script{onRcpt: func(_ net.Conn, to string) error {
				return refuse(550, smtp.EnhancedCode{5, 1, 1}, "nobody called "+to)
			}},
		}, {
			"mail refused for good",
			script{onData: func(net.Conn) error {
				return refuse(554, smtp.EnhancedCode{5, 6, 0}, "nobody called jane@example.com")
			}},
		},
	} {
		t.Run(test.situation, func(t *testing.T) {
			t.Parallel()
			shop := newShop(t)
			server := newMailServer(t, test.script)
			order := shop.sell(t, "jane@example.com")
			before := shop.row(t, order)
			var log bytes.Buffer
			worker, err := receipts.NewWorker(shop.pool, newSMTP(t, server.url()),
				receipts.Config{From: "shop@example.com"}, slog.New(slog.NewJSONHandler(&log, nil)))
			require.NoError(t, err)

			pass(t, worker, receipts.Result{Failed: 1})
			shop.exec(t, makeDue)
			pass(t, worker, receipts.Result{})

			jobs := shop.jobs(t)
			require.Len(t, jobs, 1)
			require.True(t, jobs[0].Failed)
			require.Contains(t, jobs[0].LastError, "nobody called jane@example.com")
			require.Equal(t, before, shop.row(t, order), "the order is no business of its receipt")
			require.Contains(t, log.String(), `"level":"ERROR","msg":"receipt given up"`)
			require.Contains(t, log.String(), order.String())
			require.NotContains(t, log.String(), "jane")
		})
	}
}

func TestReceiptIsGivenUpAfterItsLastAttempt(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	worker := shop.worker(t, mailerFunc(func(context.Context, receipts.Message) error { return errors.New("no") }),
		func(c *receipts.Config) { c.MaxAttempts = 3 })
	shop.sell(t, "jane@example.com")

	for range 2 {
		pass(t, worker, receipts.Result{Retried: 1})
		shop.exec(t, makeDue)
	}
	pass(t, worker, receipts.Result{Failed: 1})
	require.True(t, shop.jobs(t)[0].Failed)
	require.Equal(t, 3, shop.jobs(t)[0].Attempt)
}

func TestConnectionLostAfterTheFinalDotSendsTheSameMailAgain(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	var once sync.Once
	server := newMailServer(t, script{onData: func(conn net.Conn) (err error) {
		once.Do(func() { err = conn.Close() })
		return err
	}})
	worker := shop.worker(t, newSMTP(t, server.url()))
	order := shop.sell(t, "jane@example.com")

	pass(t, worker, receipts.Result{Retried: 1})
	shop.exec(t, makeDue)
	pass(t, worker, receipts.Result{Sent: 1})

	require.Empty(t, shop.jobs(t))
	require.Len(t, server.mails(), 2)
	for _, got := range server.mails() {
		require.Equal(t, "<receipt."+order.String()+"@example.com>", got.messageID(t))
	}
}

func TestPoisonousJobsStopNoOther(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	server := newMailServer(t, script{})
	shop.stageRaw(t, "receipt", `{}`)
	shop.stageRaw(t, "receipt", `{"order_id": "neither here nor there"}`)
	shop.stageRaw(t, "receipt", `[1]`)
	shop.stage(t, uuid.New()) // no such order
	unpaid := shop.sell(t, "unpaid@example.com")
	shop.exec(t, `UPDATE orders SET status = 'pending', paid_at = NULL WHERE id = $1`, unpaid)
	shop.sell(t, "jane@example.com\r\nBcc: eve@example.com")
	odd := shop.sell(t, "odd@example.com")
	shop.exec(t, `UPDATE orders SET items = '[{"quantity": "many"}]' WHERE id = $1`, odd)
	shop.stageRaw(t, "invoice", `{"order_id": "somebody else's"}`)
	shop.sell(t, "jane@example.com")

	worker := shop.worker(t, newSMTP(t, server.url()), func(c *receipts.Config) { c.Concurrency = 1 })
	pass(t, worker, receipts.Result{Sent: 1, Failed: 6, Retried: 1})

	require.Len(t, server.mails(), 1)
	require.Equal(t, []string{"jane@example.com"}, server.mails()[0].to)
	var others int
	require.NoError(t, shop.pool.QueryRow(t.Context(), `SELECT attempt FROM staged_jobs WHERE kind = 'invoice'`).Scan(&others))
	require.Zero(t, others)
}

func TestHostileErrorTextIsStored(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	worker := shop.worker(t, mailerFunc(func(context.Context, receipts.Message) error {
		return errors.New("nul \x00, broken \xff, long " + strings.Repeat("é", 1000))
	}))
	shop.sell(t, "jane@example.com")
	pass(t, worker, receipts.Result{Retried: 1})
	text := shop.jobs(t)[0].LastError
	require.Contains(t, text, "nul ?, broken ?, long é")
	require.Len(t, []rune(text), 500)
}
