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

// pollInterval is how often the database is read during a play.
const pollInterval = 100 * time.Millisecond

// poll updates the view until ctx ends. It ignores errors, because it reads again
// soon. The errors of the last read count (see verify).
func (p *play) poll(ctx context.Context) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_, _ = p.readState(ctx)
		case <-p.ledgerDue:
			_, _ = p.readLedger(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// state is what the database and the mailbox hold of the order.
type state struct {
	row   *keyRow // nil before there is one
	order orders.Order
	mails []Mail
}

// readState reads the state and shows it.
func (p *play) readState(ctx context.Context) (state, error) {
	c := p.console
	var s state
	var err error
	if s.row, err = readKey(ctx, c.Pool, c.account, p.view.Key, c.lease()); err != nil || s.row == nil {
		return s, err
	}
	history, err := readHistory(ctx, c.Pool, c.account, p.view.Key)
	if err != nil {
		return s, err
	}
	s.order, s.mails = history.Order, c.Mailbox.For(history.Order.ID)
	p.update(func(v *view) {
		v.Row = &rowView{
			ID:        s.row.ID.String(),
			Point:     s.row.Point,
			Attempt:   s.row.Attempt,
			LeaseLeft: int((s.row.LeaseLeft + time.Second - 1) / time.Second),
			LastError: s.row.LastError,
			Response:  s.row.Response,
			Order:     history.Order.ID.String(),
			Status:    string(history.Order.Status),
		}
		p.showHistory(v, s.row, history.Records)
		v.Mails = nil
		for i, mail := range s.mails {
			at := p.since(mail.At)
			v.Mails = append(v.Mails, mailView{at, mail.To, mail.Subject, mail.ID})
			v.put(event{ID: fmt.Sprintf("mail-%d", i), At: at, Lane: laneMail, Text: "the receipt is accepted", Detail: "for " + mail.To})
		}
	})
	return s, nil
}

// showHistory shows which recovery points the row reached, from its audit records.
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
		case "order.requires_action":
			v.put(event{ID: "action", At: at, Lane: laneRow, Text: "requires_action", Detail: "the customer must approve; the lease is released"})
		case "order.paid":
			v.Points = append(v.Points, pointView{"finished", at})
			move("tx-3", at, "finished", "transaction 3: paid, receipt staged, answer stored")
		case "order.payment_failed":
			v.Points = append(v.Points, pointView{"finished", at})
			move("tx-3", at, "finished", "transaction 3: payment failed, answer stored")
		}
	}
	if row.Attempt > 1 {
		v.putOnce(event{ // makeOlder changes LastRunAt
			ID: fmt.Sprintf("run-%d", row.Attempt), At: local(row.LastRunAt), Lane: laneRow,
			Text: fmt.Sprintf("run %d takes over", row.Attempt), Detail: fmt.Sprintf("a fresh lease: run %d writes nothing more", row.Attempt-1),
		})
	}
}

// readLedger reads the provider's intents of the key and shows them.
func (p *play) readLedger(ctx context.Context) ([]payments.Intent, error) {
	c := p.console
	intents, err := listIntents(ctx, c.Payments, p.began, idempotency.KeyID(c.account, idempotency.Key(p.view.Key)))
	if err != nil {
		return nil, fmt.Errorf("list the provider's intents: %w", err)
	}
	p.update(func(v *view) {
		v.Ledger = nil
		for _, intent := range intents {
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
	return intents, nil
}

// dollars formats an amount in cents. All orders of the page are in US dollars.
func dollars(cents int64) string { return fmt.Sprintf("$%d.%02d", cents/100, cents%100) }

// verify sends the order once more and checks the end state, which must be the same
// after every failure.
func (p *play) verify(ctx context.Context, final client.Response) error {
	if err := p.pause(ctx); err != nil {
		return err
	}
	again, err := p.send(ctx, "The same line once more", p.request)
	if err != nil {
		return err
	}
	expected, charges, status := http.StatusPaymentRequired, 0, orders.StatusPaymentFailed
	switch {
	case p.chosen.card.Pays, p.response == approves:
		expected, charges, status = http.StatusCreated, 1, orders.StatusPaid
	case p.response == leaves:
		expected = http.StatusUnprocessableEntity
	}
	p.check("The final answer", final.Status == expected, fmt.Sprintf("%d %s", final.Status, describe(final)))
	p.check("The same request gets the same bytes", again.Replayed() && again.Status == final.Status && bytes.Equal(again.Body, final.Body),
		fmt.Sprintf("%d %s, %d bytes", again.Status, describe(again), len(again.Body)))

	intents, err := p.readLedger(ctx)
	if err != nil {
		return err
	}
	charged, amount := 0, int64(0)
	for _, intent := range intents {
		if intent.Status == payments.StatusSucceeded {
			charged++
			amount += intent.AmountReceived
		}
	}
	p.check(count(charges, "charge")+" in the provider’s ledger", charged == charges && amount == int64(charges*quantity*unitAmount),
		fmt.Sprintf("%s, %s", count(charged, "charge"), dollars(amount)))

	if p.response == declines || p.response == leaves {
		canceled := len(intents) == 1 && intents[0].Status == payments.StatusCanceled
		p.check("The customer can no longer approve", canceled, "the intent is canceled")
	}

	s, err := p.awaitReceipts(ctx, charges)
	if err != nil {
		return err
	}
	p.check("One order in the database", s.row.Orders == 1 && s.order.Status == status,
		fmt.Sprintf("%s, %s", count(s.row.Orders, "order"), s.order.Status))
	p.check(count(charges, "receipt")+" accepted by the mailbox", len(s.mails) == charges && s.row.Jobs == 0,
		fmt.Sprintf("%s, %d staged", count(len(s.mails), "receipt"), s.row.Jobs))
	return nil
}

// receiptTimeout is how long a receipt may take. The worker polls once a second.
const receiptTimeout = 10 * time.Second

// awaitReceipts waits until no receipt is staged, at most for receiptTimeout.
func (p *play) awaitReceipts(ctx context.Context, expected int) (state, error) {
	deadline := time.Now().Add(receiptTimeout)
	for {
		s, err := p.readState(ctx)
		if err != nil {
			return s, err
		}
		if s.row == nil {
			return s, errors.New("the key's row is gone")
		}
		if len(s.mails) >= expected && s.row.Jobs == 0 || time.Now().After(deadline) {
			return s, nil
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return s, ctx.Err()
		}
	}
}

// count returns a number of things in words.
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
