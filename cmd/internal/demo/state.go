package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

// keyRow is the row of the key, with what the tables of docs/how-it-works.md show.
type keyRow struct {
	point, leaseToken, lockedAt, responseCode string

	attempt   int
	lastRunAt time.Time
	orders    int
	jobs      int // their receipts that are staged and not sent
}

func (s *system) readKey(ctx context.Context, key string) (row keyRow, err error) {
	err = s.Pool.QueryRow(ctx, `
SELECT k.recovery_point,
       coalesce(left(k.lease_token::text, 4) || '…', 'NULL'),
       coalesce(to_char(k.locked_at, 'HH24:MI:SS'), 'NULL'),
       coalesce(k.response_code::text, 'NULL'),
       k.attempt,
       k.last_run_at,
       (SELECT count(*)
          FROM orders AS o
         WHERE o.account_id = k.account_id
           AND o.idempotency_key = k.idempotency_key),
       (SELECT count(*)
          FROM orders AS o
          JOIN staged_jobs AS j
            ON j.account_id = o.account_id
           AND j.args ->> 'order_id' = o.id::text
         WHERE o.account_id = k.account_id
           AND o.idempotency_key = k.idempotency_key)
  FROM idempotency_keys AS k
 WHERE k.account_id = $1
   AND k.idempotency_key = $2`, s.account, key).
		Scan(&row.point, &row.leaseToken, &row.lockedAt, &row.responseCode, &row.attempt, &row.lastRunAt, &row.orders, &row.jobs)
	if err != nil {
		return row, fmt.Errorf("read the key's row: %w", err)
	}
	return row, nil
}

// makeOlder changes the times of an order without a run.
func (s *system) makeOlder(ctx context.Context, key string, by time.Duration) error {
	tag, err := s.Pool.Exec(ctx, `
WITH idle AS (
    UPDATE idempotency_keys
       SET last_run_at = last_run_at - $3::interval
     WHERE account_id = $1
       AND idempotency_key = $2
       AND locked_at IS NULL
    RETURNING account_id, idempotency_key
)
UPDATE orders AS o
   SET created_at = o.created_at - $3::interval
  FROM idle AS k
 WHERE o.account_id = k.account_id
   AND o.idempotency_key = k.idempotency_key`, s.account, key, by)
	if err == nil && tag.RowsAffected() != 1 {
		err = errors.New("a run is at work")
	}
	if err != nil {
		return fmt.Errorf("make the order older: %w", err)
	}
	return nil
}

// observe adds the state to the view. It ignores errors: there is no row before the claim,
// and the end state is read again.
func (p *play) observe(cause string) { _, _ = p.readState(p.ctx, cause) }

type state struct {
	row     keyRow
	order   orders.Order
	intents []payments.Intent
	mails   []Mail
}

// readState reads the end of an event, whose id is cause.
func (p *play) readState(ctx context.Context, cause string) (s state, err error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	if s.row, err = p.readKey(ctx, string(p.request.Key)); err != nil {
		return s, err
	}
	history, err := orders.History(ctx, p.Pool, p.account, idempotency.Key(p.request.Key))
	if err != nil {
		return s, err
	}
	if history.Order == nil {
		return s, operations.ErrNotFound
	}
	s.order, s.mails = *history.Order, p.mailbox.For(history.Order.ID)
	if s.intents, err = p.readPayments(ctx); err != nil {
		return s, err
	}
	p.update(func(v *view) {
		for i, mail := range s.mails {
			p.put(v, event{ID: fmt.Sprintf("mail-%d", i), at: mail.at, Lane: laneMail, Text: "the receipt is accepted", Detail: "to " + mail.To})
		}
		v.Mails = s.mails
		cause = cmp.Or(p.showPayments(v, s.intents), cause)
		cause = cmp.Or(p.showHistory(v, s.row, history.Records), cause, v.Events[len(v.Events)-1].ID)
		columns := s.columns(v.Payments)
		if n := len(v.Steps); n == 0 || !slices.Equal(v.Steps[n-1].Columns, columns) {
			v.Steps = append(v.Steps, rowStep{cause, columns})
		}
		p.showDesign(v, s.order)
	})
	return s, nil
}

func (s state) columns(shown []paymentView) []column {
	intent, atStripe := "NULL", []string{}
	if id := s.order.PaymentIntentID; id != nil {
		intent = (*id)[:min(len(*id), 8)] + "…"
	}
	for _, payment := range shown {
		atStripe = append(atStripe, payment.Result)
	}
	return []column{
		{"recovery_point", s.row.point},
		{"lease_token", s.row.leaseToken},
		{"locked_at", s.row.lockedAt},
		{"response_code", s.row.responseCode},
		{"order status", string(s.order.Status)},
		{"payment_intent_id", intent},
		{"at Stripe", cmp.Or(strings.Join(atStripe, ", "), "nothing")},
	}
}

// showHistory returns the id of the latest event if it is new, otherwise "".
func (p *play) showHistory(v *view, row keyRow, records []operations.AuditRecord) (latest string) {
	for _, record := range records {
		e := event{ID: record.Action, at: record.CreatedAt, Lane: laneRow, Kind: kindPoint}
		switch record.Action {
		case "order.created":
			e.Text, e.Detail = "order_created", "transaction 1: key claimed, order inserted"
		case "order.charge_created":
			e.Text, e.Detail = "charge_created", "transaction 2: id of the intent recorded"
		case "order.requires_action":
			e.Kind, e.Text, e.Detail = "", "requires_action", "the customer must approve; the lease is released"
		case "order.paid":
			e.Text, e.Detail = "finished", "transaction 3: paid, receipt staged, response stored"
		case "order.payment_failed":
			e.Text, e.Detail = "finished", "transaction 3: payment failed, response stored"
		default:
			continue
		}
		latest = cmp.Or(p.put(v, e), latest)
	}
	if row.attempt > 1 {
		run := p.put(v, event{
			ID: fmt.Sprintf("run-%d", row.attempt), at: row.lastRunAt, Lane: laneRow,
			Text: fmt.Sprintf("run %d takes over", row.attempt), Detail: fmt.Sprintf("with a new lease: run %d can no longer write", row.attempt-1),
		})
		latest = cmp.Or(latest, run)
	}
	return latest
}

func charged(intents []payments.Intent) (n int, amount int64) {
	for _, intent := range intents {
		if intent.Status == payments.StatusSucceeded {
			n++
			amount += intent.AmountReceived
		}
	}
	return n, amount
}

func (p *play) readPayments(ctx context.Context) (intents []payments.Intent, err error) {
	const maxClockSkew = 10 * time.Minute
	since := time.UnixMilli(p.view.ID).Add(-maxClockSkew)
	id := idempotency.KeyID(p.account, idempotency.Key(p.request.Key)).String()
	for after, more := "", true; more; more = after != "" {
		var page []payments.Intent
		if page, after, err = p.provider.List(ctx, since, time.Time{}, after); err != nil {
			return nil, fmt.Errorf("list the provider's payments: %w", err)
		}
		for _, intent := range page {
			if intent.Metadata["idempotency_key_id"] == id {
				intents = append(intents, intent)
			}
		}
	}
	return intents, nil
}

// showPayments returns the id of the event of a charge that is new, otherwise "".
func (p *play) showPayments(v *view, intents []payments.Intent) (charge string) {
	v.Payments = nil
	for _, intent := range intents {
		shown := paymentView{ID: intent.ID, Status: string(intent.Status), Amount: dollars(intent.Amount), Result: "an intent, nothing charged"}
		switch {
		case intent.Status == payments.StatusSucceeded:
			shown.Charged, shown.Result = true, "charged "+shown.Amount
			charge = p.put(v, event{
				ID: "charged-" + intent.ID, at: p.providerTime, Lane: laneProvider, Kind: kindMoney,
				Text: "the card is charged", Detail: shown.Amount + ", in the provider’s list",
			})
		case intent.LastError != nil && intent.LastError.DeclineCode != "":
			shown.Result = "declined: " + intent.LastError.DeclineCode
		case intent.Status == payments.StatusCanceled:
			shown.Result = "an intent, canceled"
		}
		v.Payments = append(v.Payments, shown)
	}
	return charge
}

func dollars(cents int64) string { return fmt.Sprintf("$%d.%02d", cents/100, cents%100) }

func (p *play) charges() int {
	if p.card.Pays || p.decision == approves {
		return 1
	}
	return 0
}

// verify sends the order once more and checks the end state, whatever the fault.
func (p *play) verify(final client.Response) {
	status, orderStatus := http.StatusPaymentRequired, orders.StatusPaymentFailed
	switch {
	case p.charges() == 1:
		status, orderStatus = http.StatusCreated, orders.StatusPaid
	case p.decision == leaves:
		status = http.StatusUnprocessableEntity
	}
	p.check("The final response", final.Status == status, describe(final))
	p.sendReplay(final, "The same request once more")

	p.step(func() (err error) {
		for end := time.Now().Add(receiptTimeout); ; {
			if p.end, err = p.readState(p.ctx, ""); err != nil {
				return err
			}
			if len(p.end.mails) >= p.charges() && p.end.row.jobs == 0 || time.Now().After(end) {
				return nil
			}
			if err := wait(p.ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
	})
	s := p.end
	n, amount := charged(s.intents)
	p.check(count(p.charges(), "charge")+" in the provider’s list", n == p.charges() && amount == int64(n*quantity*unitAmount),
		fmt.Sprintf("%s, %s", count(n, "charge"), dollars(amount)))
	if p.decision == declines || p.decision == leaves {
		p.check("The customer can no longer approve", len(s.intents) == 1 && s.intents[0].Status == payments.StatusCanceled, "the intent is canceled")
	}
	p.check("One order in the database", s.row.orders == 1 && s.order.Status == orderStatus,
		fmt.Sprintf("%s, %s", count(s.row.orders, "order"), s.order.Status))
	p.check(count(p.charges(), "receipt")+" accepted by the mail server", len(s.mails) == p.charges() && s.row.jobs == 0,
		fmt.Sprintf("%s, %d staged", count(len(s.mails), "receipt"), s.row.jobs))
}

const receiptTimeout = 10 * time.Second

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// summary returns the responses, such as "no response, 4 × 409 (in progress), 201".
func (p *play) summary() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	short := strings.NewReplacer(" created", "", ", replayed", " replayed", "idempotency-key-in-progress", "(in progress)")
	counts := map[string]int{}
	var texts []string
	for _, request := range p.view.Requests[:len(p.view.Requests)-1] {
		for _, r := range request.Responses {
			text := short.Replace(r.String())
			if counts[text]++; counts[text] == 1 {
				texts = append(texts, text)
			}
		}
	}
	for i, text := range texts {
		if n := counts[text]; n > 1 {
			texts[i] = fmt.Sprintf("%d × %s", n, text)
		}
	}
	return strings.Join(texts, ", ")
}
