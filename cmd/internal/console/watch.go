package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

// lookEvery is how often the books are looked at while an order is on its way.
const lookEvery = 100 * time.Millisecond

// watch keeps the view up to date until ctx ends. What it cannot read now it reads
// the next time, and at the end it must (see settle).
func (p *play) watch(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_, _ = p.lookAtBooks(ctx)
		case <-p.ledgerDue:
			_, _ = p.lookAtLedger(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// books are what the database and the mailbox say.
type books struct {
	row   *keyRow // nil before there is one
	order orders.Order
	mails []Mail
}

func (p *play) lookAtBooks(ctx context.Context) (books, error) {
	c := p.console
	var b books
	var err error
	if b.row, err = readKey(ctx, c.Pool, c.account, p.view.Key, c.lease()); err != nil || b.row == nil {
		return b, err
	}
	story, err := readHistory(ctx, c.Pool, c.account, p.view.Key)
	if err != nil {
		return b, err
	}
	b.order, b.mails = story.Order, c.Mailbox.For(story.Order.ID)
	p.update(func(v *view) {
		v.Row = &rowView{
			ID:        b.row.ID.String(),
			Point:     b.row.Point,
			Attempt:   b.row.Attempt,
			LeaseLeft: int((b.row.LeaseLeft + time.Second - 1) / time.Second),
			LastError: b.row.LastError,
			Response:  b.row.Response,
			Order:     story.Order.ID.String(),
			Status:    string(story.Order.Status),
		}
		p.showHistory(v, b.row, story.Records)
		v.Mails = nil
		for i, mail := range b.mails {
			at := p.since(mail.At)
			v.Mails = append(v.Mails, mailView{at, mail.To, mail.Subject, mail.ID})
			v.put(event{ID: fmt.Sprintf("mail-%d", i), At: at, Lane: laneMail, Text: "the receipt is accepted", Detail: "for " + mail.To})
		}
	})
	return b, nil
}

// showHistory tells how far the row came, from its audit records.
func (p *play) showHistory(v *view, row *keyRow, records []orders.AuditRecord) {
	local := func(at time.Time) int64 { return p.since(at.Add(-row.ahead)) }
	move := func(id string, at int64, text, detail string) {
		v.put(event{ID: id, At: at, Lane: laneRow, Kind: kindPoint, Text: text, Detail: detail})
	}
	created := local(row.CreatedAt)
	v.Points = []pointView{{"started", created}}
	for _, record := range records {
		at := local(record.CreatedAt)
		switch record.Action {
		case "order.created":
			v.Points = append(v.Points, pointView{"order_created", at})
			move("tx-1", at, "order_created", "transaction 1: key claimed, order inserted")
		case "order.charge_created":
			v.Points = append(v.Points, pointView{"charge_created", at})
			move("tx-2", at, "charge_created", "transaction 2: the intent’s id is recorded")
		case "order.paid":
			v.Points = append(v.Points, pointView{"finished", at})
			move("tx-3", at, "finished", "transaction 3: paid, receipt staged, answer stored")
		case "order.payment_failed":
			v.Points = append(v.Points, pointView{"finished", at})
			move("tx-3", at, "finished", "transaction 3: payment failed, answer stored")
		}
	}
	if row.Attempt > 1 {
		v.put(event{
			ID: fmt.Sprintf("run-%d", row.Attempt), At: local(row.LastRunAt), Lane: laneRow,
			Text: fmt.Sprintf("run %d takes over", row.Attempt), Detail: fmt.Sprintf("a fresh lease: run %d writes nothing more", row.Attempt-1),
		})
	}
}

// lookAtLedger asks the provider what it has for the key.
func (p *play) lookAtLedger(ctx context.Context) ([]payments.Intent, error) {
	c := p.console
	ledger, err := readLedger(ctx, c.Payments, p.began, idempotency.KeyID(c.account, idempotency.Key(p.view.Key)))
	if err != nil {
		return nil, fmt.Errorf("ask the provider: %w", err)
	}
	p.update(func(v *view) {
		v.Ledger = nil
		for _, intent := range ledger {
			shown := intentView{ID: intent.ID, Status: string(intent.Status), Amount: dollars(intent.Amount)}
			if intent.Status == payments.StatusSucceeded {
				shown.Charged, shown.Charge = true, intent.ChargeID
				v.putOnce(event{
					ID: "charged-" + intent.ID, At: p.since(time.Now()), Lane: laneProvider, Kind: kindMoney,
					Text: "the card is charged", Detail: shown.Amount + ", says the ledger",
				})
			}
			if intent.LastError != nil {
				shown.Reason = intent.LastError.DeclineCode
			}
			v.Ledger = append(v.Ledger, shown)
		}
	})
	return ledger, nil
}

// dollars are an amount in cents, for people. The page sells in one currency.
func dollars(cents int64) string { return fmt.Sprintf("$%d.%02d", cents/100, cents%100) }

// settle sends the order once more and looks at everything a last time: whatever
// went wrong, these must hold.
func (p *play) settle(ctx context.Context, final client.Response) error {
	pays := p.chosen.card.Pays
	if err := p.pause(ctx); err != nil {
		return err
	}
	again, err := p.send(ctx, "The same line once more", p.request)
	if err != nil {
		return err
	}
	expected, charges := http.StatusPaymentRequired, 0
	if pays {
		expected, charges = http.StatusCreated, 1
	}
	p.check("The final answer", final.Status == expected, fmt.Sprintf("%d %s", final.Status, describe(final)))
	p.check("The same request gets the same bytes", again.Replayed() && again.Status == final.Status && bytes.Equal(again.Body, final.Body),
		fmt.Sprintf("%d %s, %d bytes", again.Status, describe(again), len(again.Body)))

	ledger, err := p.lookAtLedger(ctx)
	if err != nil {
		return err
	}
	charged, amount := 0, int64(0)
	for _, intent := range ledger {
		if intent.Status == payments.StatusSucceeded {
			charged++
			amount += intent.AmountReceived
		}
	}
	p.check(count(charges, "charge")+" in the provider’s ledger", charged == charges && amount == int64(charges*quantity*unitAmount),
		fmt.Sprintf("%s, %s", count(charged, "charge"), dollars(amount)))

	b, err := p.awaitReceipts(ctx, charges)
	if err != nil {
		return err
	}
	status := orders.StatusPaymentFailed
	if pays {
		status = orders.StatusPaid
	}
	p.check("One order in the database", b.row.Orders == 1 && b.order.Status == status,
		fmt.Sprintf("%s, %s", count(b.row.Orders, "order"), b.order.Status))
	p.check(count(charges, "receipt")+" accepted by the mailbox", len(b.mails) == charges && b.row.Jobs == 0,
		fmt.Sprintf("%s, %d staged", count(len(b.mails), "receipt"), b.row.Jobs))
	return nil
}

// mailPatience is how long a receipt may take: the worker looks once a second.
const mailPatience = 10 * time.Second

// awaitReceipts waits until no receipt is staged any more, or for mailPatience.
func (p *play) awaitReceipts(ctx context.Context, expected int) (books, error) {
	deadline := time.Now().Add(mailPatience)
	for {
		b, err := p.lookAtBooks(ctx)
		if err != nil {
			return b, err
		}
		if b.row == nil {
			return b, errors.New("the key's row is gone")
		}
		if len(b.mails) >= expected && b.row.Jobs == 0 || time.Now().After(deadline) {
			return b, nil
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return b, ctx.Err()
		}
	}
}

// count is a number of things.
func count(n int, thing string) string {
	switch n {
	case 0:
		return "No " + thing
	case 1:
		return "One " + thing
	default:
		return fmt.Sprintf("%d %ss", n, thing)
	}
}
