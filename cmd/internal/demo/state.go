package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

type keyRow struct {
	Point     string `json:"point"`
	Attempt   int    `json:"attempt"`
	LeaseLeft int    `json:"lease_left"`
	LastError string `json:"last_error"`
	Response  int    `json:"response"`
	Order     string `json:"order"`

	lastRunAt time.Time
	orders    int
	jobs      int // their receipts that are staged and not sent
}

func (s *system) readKey(ctx context.Context, key string) (row keyRow, err error) {
	err = s.Pool.QueryRow(ctx, `
SELECT k.recovery_point,
       k.attempt,
       coalesce(ceil(greatest(extract(epoch FROM k.locked_at + $3::interval - now()), 0)), 0)::int,
       coalesce(k.last_error, ''),
       coalesce(k.response_code, 0),
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
   AND k.idempotency_key = $2`, s.account, key, s.lease()).Scan(&row.Point, &row.Attempt, &row.LeaseLeft, &row.LastError, &row.Response,
		&row.lastRunAt, &row.orders, &row.jobs)
	if err != nil {
		return row, fmt.Errorf("read the key's row: %w", err)
	}
	return row, nil
}

// makeOlder changes the times of an order that waits for its customer.
func (s *system) makeOlder(ctx context.Context, key string, by time.Duration) error {
	tag, err := s.Pool.Exec(ctx, `
WITH waiting AS (
    UPDATE idempotency_keys
       SET last_run_at = last_run_at - $3::interval
     WHERE account_id = $1
       AND idempotency_key = $2
       AND action_required_at IS NOT NULL
    RETURNING account_id, idempotency_key
)
UPDATE orders AS o
   SET created_at = o.created_at - $3::interval
  FROM waiting AS w
 WHERE o.account_id = w.account_id
   AND o.idempotency_key = w.idempotency_key`, s.account, key, by)
	if err == nil && tag.RowsAffected() != 1 {
		err = errors.New("it does not wait for its customer")
	}
	if err != nil {
		return fmt.Errorf("make the order older: %w", err)
	}
	return nil
}

// refresh updates the view. It ignores errors, because the page soon asks again.
func (p *play) refresh(ctx context.Context) {
	if p.phase() == phaseRunning {
		_, _ = p.readState(ctx)
	}
	if p.listDue.Swap(false) {
		_, _ = p.readPayments(ctx)
	}
}

type state struct {
	row   keyRow
	order orders.Order
	mails []Mail
}

func (p *play) readState(ctx context.Context) (s state, err error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	row, err := p.readKey(ctx, string(p.request.Key))
	if err != nil {
		return s, err
	}
	history, err := orders.History(ctx, p.Pool, p.account, idempotency.Key(p.request.Key))
	if err != nil {
		return s, err
	}
	if history.Order == nil {
		return s, operations.ErrNotFound
	}
	row.Order = fmt.Sprintf("%s, %s", history.Order.Status, history.Order.ID)
	s = state{row, *history.Order, p.mailbox.For(history.Order.ID)}
	p.update(func(v *view) {
		v.Row, v.Mails = &s.row, s.mails
		p.showHistory(v, row, history.Records)
		for i, mail := range s.mails {
			p.put(v, event{ID: fmt.Sprintf("mail-%d", i), at: mail.at, Lane: laneMail, Text: "the receipt is accepted", Detail: "to " + mail.To})
		}
	})
	return s, nil
}

func (p *play) showHistory(v *view, row keyRow, records []operations.AuditRecord) {
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
		p.put(v, e)
	}
	if row.Attempt > 1 {
		p.put(v, event{
			ID: fmt.Sprintf("run-%d", row.Attempt), at: row.lastRunAt, Lane: laneRow,
			Text: fmt.Sprintf("run %d takes over", row.Attempt), Detail: fmt.Sprintf("with a new lease: run %d can no longer write", row.Attempt-1),
		})
	}
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
	p.reading.Lock()
	defer p.reading.Unlock()
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
	p.update(func(v *view) {
		v.Payments = nil
		for _, intent := range intents {
			shown := paymentView{ID: intent.ID, Status: string(intent.Status), Amount: dollars(intent.Amount)}
			if intent.Status == payments.StatusSucceeded {
				shown.Charged = true
				p.put(v, event{
					ID: "charged-" + intent.ID, at: p.providerTime, Lane: laneProvider, Kind: kindMoney,
					Text: "the card is charged", Detail: shown.Amount + ", in the provider’s list",
				})
			}
			if intent.LastError != nil {
				shown.Reason = intent.LastError.DeclineCode
			}
			v.Payments = append(v.Payments, shown)
		}
	})
	return intents, nil
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

	var intents []payments.Intent
	p.step(func() (err error) {
		intents, err = p.readPayments(p.ctx)
		return err
	})
	n, amount := charged(intents)
	p.check(count(p.charges(), "charge")+" in the provider’s list", n == p.charges() && amount == int64(n*quantity*unitAmount),
		fmt.Sprintf("%s, %s", count(n, "charge"), dollars(amount)))
	if p.decision == declines || p.decision == leaves {
		p.check("The customer can no longer approve", len(intents) == 1 && intents[0].Status == payments.StatusCanceled, "the intent is canceled")
	}

	p.step(func() (err error) {
		for end := time.Now().Add(receiptTimeout); ; {
			if p.end, err = p.readState(p.ctx); err != nil {
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
	short := strings.NewReplacer(" created", "", ", replayed", " replayed", "idempotency-key-in-progress", "(in progress)", "0 no", "no")
	counts := map[string]int{}
	var texts []string
	for _, request := range p.view.Requests[:len(p.view.Requests)-1] {
		for _, r := range request.Responses {
			text := short.Replace(fmt.Sprintf("%d %s", r.Status, r.Text))
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
