package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/client"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

// row has the columns of the key and its order that docs/how-it-works.md shows.
type row struct {
	Point, Token, LockedAt, ResponseCode string

	Attempt int
	OrderID uuid.UUID
	Status  orders.Status
	Intent  string
	Jobs    int // receipts that are staged and not sent
}

type state struct {
	row
	intents []payments.Intent // in the provider's list
	mails   int
}

func (p *play) readState(ctx context.Context) (s state, err error) {
	rows, _ := p.Pool.Query(ctx, `
SELECT k.recovery_point,
       coalesce(left(k.lease_token::text, 4) || '…', 'NULL'),
       coalesce(to_char(k.locked_at, 'HH24:MI:SS'), 'NULL'),
       coalesce(k.response_code::text, 'NULL'),
       k.runs,
       o.id,
       o.status,
       coalesce(left(o.payment_intent_id, 8) || '…', 'NULL'),
       (SELECT count(*)
          FROM staged_jobs AS j
         WHERE j.account_id = o.account_id
           AND j.kind = 'receipt'
           AND j.args ->> 'order_id' = o.id::text)
  FROM idempotency_keys AS k
  JOIN orders AS o
    ON o.account_id = k.account_id
   AND o.idempotency_key = k.idempotency_key
 WHERE k.account_id = $1
   AND k.idempotency_key = $2`, p.Account, p.request.Key)
	if s.row, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[row]); err != nil {
		return s, fmt.Errorf("read the key's row: %w", err)
	}
	const maxClockSkew = 10 * time.Minute
	since := time.UnixMilli(p.view.ID).Add(-maxClockSkew)
	for after, more := "", true; more; more = after != "" {
		var page []payments.Intent
		if page, after, err = p.provider.List(ctx, since, after); err != nil {
			return s, fmt.Errorf("list the provider's payments: %w", err)
		}
		for _, intent := range page {
			if intent.Metadata["order_id"] == s.OrderID.String() {
				s.intents = append(s.intents, intent)
			}
		}
	}
	p.system.mu.Lock()
	defer p.system.mu.Unlock()
	s.mails = p.mails[s.OrderID]
	return s, nil
}

// addChanges stores s as the latest state, and adds an event for each difference from the one before. It
// returns the id of the last of these events, or "" if neither the row nor the payments have changed.
func (p *play) addChanges(s state) (cause string) {
	old := p.state
	p.state = s
	if s.Attempt > max(old.Attempt, 1) {
		cause = p.add(event{
			Lane: laneRow, Text: fmt.Sprintf("run %d takes over", s.Attempt),
			Detail: fmt.Sprintf("with a new lease: run %d can no longer write", s.Attempt-1),
		})
	}
	charges, amount := s.charges()
	if before, _ := old.charges(); charges > before {
		cause = p.add(event{
			Lane: laneProvider, Kind: kindMoney, Text: "the card is charged", Detail: dollars(amount) + ", in the provider’s list",
		})
	}
	if text, detail := s.progress(); s.Point != old.Point || s.Status != old.Status {
		cause = p.add(event{Lane: laneRow, Kind: kindPoint, Text: text, Detail: detail})
	}
	if s.mails > old.mails {
		p.add(event{Lane: laneMail, Text: "the receipt is accepted", Detail: "by the mail server"})
	}
	return cause
}

// progress describes the transaction that wrote the row.
func (r row) progress() (text, detail string) {
	switch {
	case r.Status == orders.StatusRequiresAction:
		return "requires_action", "the customer must approve; the lease is released"
	case r.Point == "order_created":
		return r.Point, "transaction 1: key claimed, order inserted"
	case r.Point == "charge_created":
		return r.Point, "transaction 2: id of the intent recorded"
	case r.Status == orders.StatusPaid:
		return r.Point, "transaction 3: paid, receipt staged, response stored"
	default:
		return r.Point, "transaction 3: payment failed, response stored"
	}
}

func (s state) columns() []column {
	var results []string
	for _, intent := range s.intents {
		results = append(results, result(intent))
	}
	return []column{
		{"recovery_point", s.Point},
		{"lease_token", s.Token},
		{"locked_at", s.LockedAt},
		{"response_code", s.ResponseCode},
		{"order status", string(s.Status)},
		{"payment_intent_id", s.Intent},
		{"at Stripe", cmp.Or(strings.Join(results, ", "), "nothing")},
	}
}

func result(intent payments.Intent) string {
	switch {
	case intent.Status == payments.StatusSucceeded:
		return "charged " + dollars(intent.Amount)
	case intent.LastError != nil && intent.LastError.DeclineCode != "":
		return "declined: " + intent.LastError.DeclineCode
	case intent.Status == payments.StatusCanceled:
		return "an intent, canceled"
	default:
		return "an intent, nothing charged"
	}
}

func (s state) charges() (n int, amount int64) {
	for _, intent := range s.intents {
		if intent.Status == payments.StatusSucceeded {
			n++
			amount += intent.AmountReceived
		}
	}
	return n, amount
}

func dollars(cents int64) string { return fmt.Sprintf("$%d.%02d", cents/100, cents%100) }

// expected returns how many charges the order must have. It must have as many receipts.
func (p *play) expected() int {
	if p.card.Pays || p.decision == approves {
		return 1
	}
	return 0
}

const receiptTimeout = 10 * time.Second

// verify sends the order once more and checks the end state. The checks are the same for all faults.
func (p *play) verify(final client.Response) {
	status, orderStatus := http.StatusPaymentRequired, orders.StatusPaymentFailed
	switch {
	case p.expected() == 1:
		status, orderStatus = http.StatusCreated, orders.StatusPaid
	case p.card.Asks && p.decision == "": // the time to approve is over
		status = http.StatusUnprocessableEntity
	}
	p.check("The final response", final.Status == status, describe(final))
	p.sendReplay(final, "The same request once more")

	var s state
	p.step(func() (err error) {
		for end := time.Now().Add(receiptTimeout); ; {
			s, err = p.observe(func() {})
			if err != nil || s.mails >= p.expected() && s.Jobs == 0 || time.Now().After(end) {
				return err
			}
			if err := wait(p.ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
	})
	n, amount := s.charges()
	p.check(count(p.expected(), "charge")+" in the provider’s list", n == p.expected() && amount == int64(n*quantity*unitAmount),
		fmt.Sprintf("%s, %s", count(n, "charge"), dollars(amount)))
	if p.card.Asks && p.expected() == 0 {
		p.check("The customer can no longer approve", len(s.intents) == 1 && s.intents[0].Status == payments.StatusCanceled, "the intent is canceled")
	}
	p.check("One order in the database", s.Status == orderStatus, "1 order, "+string(s.Status))
	p.check(count(p.expected(), "receipt")+" accepted by the mail server", s.mails == p.expected() && s.Jobs == 0,
		fmt.Sprintf("%s, %d staged", count(s.mails, "receipt"), s.Jobs))
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// makeOlder moves the times of the order and its key back. It fails while a run holds the lease.
func (p *play) makeOlder(by time.Duration) error {
	tag, err := p.Pool.Exec(p.ctx, `
WITH idle AS (
    UPDATE idempotency_keys
       SET updated_at = updated_at - $3::interval
     WHERE account_id = $1
       AND idempotency_key = $2
       AND locked_at IS NULL
    RETURNING account_id, idempotency_key
)
UPDATE orders AS o
   SET created_at = o.created_at - $3::interval
  FROM idle AS k
 WHERE o.account_id = k.account_id
   AND o.idempotency_key = k.idempotency_key`, p.Account, p.request.Key, by)
	if err == nil && tag.RowsAffected() != 1 {
		err = errors.New("a run is at work")
	}
	return err
}
