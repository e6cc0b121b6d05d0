package shop

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/orders-api/client"
)

// EventsPath is the path of the endpoint for the API's events.
const EventsPath = Path + "/events"

const maxEvent = 64 << 10 // bytes

// eventRetention is how long a handled event is remembered. The API repeats an event for three days.
const eventRetention = 7 * 24 * time.Hour

// receiveEvent stores an event and responds. Run handles it, because the API waits for the response.
func (s *Shop) receiveEvent(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEvent))
	var event client.Event
	if err == nil {
		event, err = client.VerifyEvent(s.EventSecrets, r.Header, body, time.Now())
	}
	if err != nil {
		s.Logger.WarnContext(r.Context(), "shop: event rejected", "error", err)
		w.WriteHeader(http.StatusBadRequest)
		return nil
	}
	_, err = s.Pool.Exec(r.Context(), "INSERT INTO shop.events (id, order_id) VALUES ($1, $2) ON CONFLICT DO NOTHING", event.ID, event.Data.OrderID)
	if err != nil {
		return err // the API repeats the event after a 500
	}
	s.Logger.InfoContext(r.Context(), "shop: event", "type", event.Type, "order", event.Data.OrderID)
	w.WriteHeader(http.StatusNoContent)
	select {
	case s.arrived <- struct{}{}:
	default: // Run has not yet begun to handle the event before
	}
	return nil
}

// HandleEvents handles the stored events, and forgets old ones. An event stays unhandled while the API
// cannot be reached.
func (s *Shop) HandleEvents(ctx context.Context) error {
	_, err := s.Pool.Exec(ctx, "DELETE FROM shop.events WHERE handled_at < now() - $1::interval", eventRetention)
	if err != nil {
		return err
	}
	rows, _ := s.Pool.Query(ctx, "SELECT id, order_id FROM shop.events WHERE handled_at IS NULL ORDER BY received_at LIMIT 100")
	events, err := pgx.CollectRows(rows, pgx.RowToStructByName[struct{ ID, OrderID string }])
	for _, event := range events {
		failed := s.orderChanged(ctx, event.OrderID)
		if failed == nil {
			_, failed = s.Pool.Exec(ctx, "UPDATE shop.events SET handled_at = now() WHERE id = $1", event.ID)
		}
		err = errors.Join(err, failed)
	}
	return err
}

// orderChanged continues the purchase of an order, as a reload of its page does. It finds the purchase by the
// order's reference, because an event may come before the response that contains the order's id. Only the order
// counts, so events may be late, out of order and of any type.
func (s *Shop) orderChanged(ctx context.Context, orderID string) error {
	limited, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	order, err := s.Orders.GetOrder(limited, orderID)
	if isNotFound(err) {
		s.Logger.WarnContext(ctx, "shop: event about an unknown order", "order", orderID)
		return nil
	} else if err != nil || order.Status == "pending" || order.Status == "requires_action" {
		return err // an event follows when the payment has ended
	}
	p, err := s.one(ctx, "SELECT"+columns+"FROM shop.purchases WHERE id::text = $1", order.Reference)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && p.State != paying {
		return nil // not the shop's purchase, or it has ended
	}
	if err == nil {
		_, _, err = s.attempt(ctx, p)
	}
	return err
}
