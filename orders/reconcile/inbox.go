package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

const (
	// listReach is how far back the provider lists events.
	listReach = 30 * 24 * time.Hour

	// listOverlap is longer than the provider takes to list an event.
	listOverlap = 10 * time.Minute
)

// pass is a reading of the list between two times. The first one begins with the oldest event that the
// provider lists.
type pass struct {
	from  *time.Time
	until time.Time
}

// ReadList records the events since the last reading. After the last page, it moves the place in the list to the time
// at which the first page was read. The provider's clock and the database's may differ, so the earlier of their times
// counts, and no event is skipped (R27, the provider's events).
func (s *Service) ReadList(ctx context.Context) error {
	// An API key of another account or mode gets a list without our events.
	if err := s.Orders.CheckProviderAccount(ctx, uuid.Nil); err != nil {
		return err
	}
	p, err := s.readPlace(ctx)
	if err != nil {
		return err
	}
	since := time.Unix(0, 0)
	if p.from != nil {
		since = p.from.Add(-listOverlap)
	}
	for after := ""; ; {
		events, next, at, err := s.Orders.Payments.ListEvents(ctx, since, after)
		if err != nil {
			return fmt.Errorf("list the provider's events: %w", err)
		}
		if after == "" && at.Sub(p.until).Abs() > payments.ClockSkew {
			s.Orders.Logger.WarnContext(ctx, "the provider's clock and the database's differ", "provider", at, "database", p.until)
		}
		if after == "" && at.Before(p.until) {
			p.until = at
		}
		var last *pass
		if next == "" {
			last = &p
		}
		if err := s.record(ctx, events, last); err != nil || next == "" {
			return err
		}
		after = next
	}
}

// placeSQL ignores a place in the future, which was set while clocks ran ahead (R8, the database's clock).
const placeSQL = "(SELECT max(read_until) FROM provider_event_place WHERE read_until <= now() + interval '1 minute')"

// readPlace returns a pass from the place until now. It deletes events, which are kept for longer than the
// provider can repeat them.
func (s *Service) readPlace(ctx context.Context) (p pass, err error) {
	_, err = s.Orders.Pool.Exec(ctx, "DELETE FROM provider_events WHERE received_at < now() - interval '31 days'")
	if err == nil {
		err = s.Orders.Pool.QueryRow(ctx, "SELECT now(), "+placeSQL).Scan(&p.until, &p.from)
	}
	if err != nil {
		err = fmt.Errorf("read the place in the provider's list: %w", postgres.Translate(err))
	}
	return p, err
}

// record stores new events with the jobs of their orders and, after the last page of a pass, the place
// (R27, the provider's events). A job that exists is repeated, also if it is just being worked off.
func (s *Service) record(ctx context.Context, events []payments.ProviderEvent, last *pass) error {
	var ids, types, objects, intents []string
	rest := &pgx.Batch{}
	for _, e := range events {
		if !e.NamesIntent {
			jobs.Report(rest, uuid.Nil, "event_unreadable", map[string]string{"event_id": e.ID, "type": e.Type, "object_id": e.ObjectID}, e.ID)
			continue
		}
		ids, types, objects, intents = append(ids, e.ID), append(types, e.Type), append(objects, e.ObjectID), append(intents, e.IntentID)
	}
	if last != nil {
		last.queue(rest)
	}
	err := pgx.BeginTxFunc(ctx, s.Orders.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `
INSERT INTO provider_events (id, type, object_id, intent_id)
SELECT id, type, nullif(object_id, ''), nullif(intent_id, '')
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS e (id, type, object_id, intent_id)
 ORDER BY id -- so that concurrent transactions do not deadlock
    ON CONFLICT DO NOTHING
RETURNING coalesce(intent_id, '')`, ids, types, objects, intents) // CollectRows returns its error
		changed, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		rows, _ = tx.Query(ctx, "SELECT account_id, id FROM orders WHERE payment_intent_id = ANY($1) ORDER BY id", changed)
		concerned, err := pgx.CollectRows(rows, pgx.RowToStructByPos[orderID])
		for _, o := range concerned {
			orders.StageChange(rest, o.AccountID, o.ID)
		}
		return errors.Join(err, tx.SendBatch(ctx, rest).Close())
	})
	if err != nil {
		err = fmt.Errorf("record the provider's events: %w", postgres.Translate(err))
	}
	return err
}

type orderID struct{ AccountID, ID uuid.UUID }

// queue moves the place. If events were too old for the list, an operator has to look for what they were
// about.
func (p pass) queue(tx postgres.Queuer) {
	tx.Queue("INSERT INTO provider_event_place (read_until) VALUES ($1) ON CONFLICT DO NOTHING", p.until)
	tx.Queue("UPDATE provider_event_place SET read_until = $1 WHERE read_until NOT BETWEEN $1 AND now() + interval '1 minute'", p.until)
	if listed := p.until.Add(-listReach); p.from != nil && p.from.Before(listed) {
		jobs.Report(tx, uuid.Nil, "events_missed", map[string]any{
			"from": p.from, "until": listed,
			"command": fmt.Sprintf("orders reconcile --since %.0fh", p.until.Sub(*p.from).Hours()+1),
		}, p.from.String())
	}
}

// Unread returns for how long the list was not read to its end. If it never was, that is since the first
// account was created.
func Unread(ctx context.Context, pool *pgxpool.Pool) (unread time.Duration, err error) {
	err = pool.QueryRow(ctx, `
SELECT greatest(now() - coalesce(
           `+placeSQL+`,
           (SELECT min(created_at) FROM accounts),
           now()
       ), interval '0')`).Scan(&unread)
	if err != nil {
		err = fmt.Errorf("read the place in the provider's list: %w", err)
	}
	return unread, err
}

// Result is what an event about a payment has caused.
type Result struct {
	KeyID      uuid.UUID          // uuid.Nil if we have no such key
	Run        idempotency.Result // of the key
	Unfinished error              // why the key has no response, although the event need not be repeated
}

// Handle records an event about a refund or a dispute for the worker, and resumes the key of an event about a
// payment. The run reads the outcome from the provider, so an old, repeated or wrong event changes nothing. After an
// error, the provider should send the event again. The error is [idempotency.ErrInProgress] if the event decides a
// payment while another run, which may have read the payment before, holds the key.
func (s *Service) Handle(ctx context.Context, event payments.ProviderEvent) (result Result, err error) {
	if event.IsChange() {
		return result, s.record(ctx, []payments.ProviderEvent{event}, nil)
	}
	ids := payments.ParseMetadata(event.Metadata)
	if ids.AccountID == uuid.Nil || ids.KeyID == uuid.Nil || event.IntentID == "" { // another program's
		return result, nil
	}
	result.Run, err = s.Orders.Engine.Resume(ctx, ids.AccountID, ids.KeyID)
	if errors.Is(err, idempotency.ErrNotFound) { // reaped, or of another database
		return result, nil
	}
	result.KeyID = ids.KeyID
	if errors.Is(err, idempotency.ErrActionRequired) || undecided(event) && (errors.Is(err, idempotency.ErrInProgress) || stillProcessing(err)) {
		result.Unfinished, err = err, nil
	}
	return result, err
}

// undecided reports whether another event follows when the payment is decided.
func undecided(event payments.ProviderEvent) bool {
	return slices.Contains([]string{"payment_intent.created", "payment_intent.requires_action", "payment_intent.processing"}, event.Type)
}

func stillProcessing(err error) bool {
	failed, ok := errors.AsType[*payments.Error](err)
	return ok && failed.Code == string(payments.StatusProcessing)
}
