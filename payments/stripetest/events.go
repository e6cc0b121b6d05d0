package stripetest

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

const apiVersion = "2024-06-20"

// Event returns the body and the Stripe-Signature header of an event about a refund, a dispute, an
// intent or, if the type begins with "charge.", its latest charge. It is the newest such event of the
// list, or otherwise a new one.
func (s *Server) Event(secret, eventType, id string) (payload []byte, signature string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pi, isIntent := s.intents.byID[id]
	re, isRefund := s.refunds.byID[id]
	d, isDispute := s.disputes.byID[id]
	var object any = pi
	switch {
	case isRefund:
		object = re
	case isDispute:
		object = d
	case !isIntent:
		return nil, "", fmt.Errorf("stripetest: no payment intent, refund or dispute %s", id)
	case strings.HasPrefix(eventType, "charge."):
		ch, charged := s.charges.byID[string(pi.LatestCharge)]
		if !charged {
			return nil, "", fmt.Errorf("stripetest: %s has no charge", id)
		}
		object, id = ch, ch.ID
	}
	for _, e := range slices.Backward(s.events) {
		if e.Type == eventType && e.ObjectID == id {
			payload, signature = e.Sign(secret, time.Now())
			return payload, signature, nil
		}
	}
	payload, signature = SignedEvent(secret, eventType, object, time.Now())
	return payload, signature, nil
}

// SignedEvent is like Event, for any object.
func SignedEvent(secret, eventType string, object any, at time.Time) (payload []byte, signature string) {
	return (&Event{ID: newID("evt_3", 23), Type: eventType, Created: at.Unix(), object: object}).Sign(secret, at)
}

// Sign returns the body and the Stripe-Signature header of a delivery.
func (e *Event) Sign(secret string, at time.Time) (payload []byte, signature string) {
	payload, err := json.MarshalIndent(e, "", "  ") // Stripe indents, too
	if err != nil {
		panic(fmt.Sprintf("stripetest: event: %v", err))
	}
	return payload, fmt.Sprintf("t=%d,v1=%s", at.Unix(), Sign(secret, payload, at))
}

// Sign returns the v1 signature of a payload.
func Sign(secret string, payload []byte, at time.Time) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.%s", at.Unix(), payload)
	return fmt.Sprintf("%x", mac.Sum(nil))
}

// An Event is a change of a refund or of a dispute, with a copy of the object.
type Event struct {
	ID, Type           string
	ObjectID, IntentID string
	Created            int64

	ListedAt time.Time // the list lacks the event before this time
	Times    int       // how often the list has the event: 0 if it is lost

	object any
}

// MarshalJSON returns the event as Stripe sends it.
func (e *Event) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{
		"id":               e.ID,
		"object":           "event",
		"api_version":      apiVersion,
		"created":          e.Created,
		"data":             map[string]any{"object": e.object},
		"livemode":         false,
		"pending_webhooks": 1,
		"request":          map[string]any{"id": nil, "idempotency_key": nil},
		"type":             e.Type,
	})
}

// emit adds an event. Those of refunds are charge.refunded and charge.refund.updated, because the
// types refund.… are about other refunds before API version 2024-10-28.
func (s *Server) emit(eventType string, object any, intentID string) {
	now := s.now()
	e := &Event{
		ID: newID("evt_3", 23), Type: eventType, IntentID: intentID, Created: now.Unix(),
		ListedAt: now.Add(s.options.EventDelay), Times: 1, object: object,
	}
	switch o := object.(type) {
	case Charge:
		e.ObjectID = o.ID
	case Refund:
		e.ObjectID = o.ID
	case Dispute:
		e.ObjectID = o.ID
	}
	s.events = append(s.events, e)
}

// EditEvents calls edit with each event, the oldest first. It can lose, double or delay them in the list.
func (s *Server) EditEvents(edit func(*Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		edit(e)
	}
}

// ForeignEvents adds events about n refunds of another program.
func (s *Server) ForeignEvents(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		intentID := newID("pi_3", 23)
		s.emit("charge.refund.updated", Refund{ID: newID("re_3", 23), Object: "refund", IntentID: intentID, Status: succeeded}, intentID)
	}
}

const eventTTL = 30 * 24 * time.Hour

// listEvents returns the newest events first. Those of one second are in random order, by their ids.
func (s *Server) listEvents(c *call) (effect, *apiError) {
	f := c.form
	limit := f.limit()
	after := f.text("starting_after")
	from, _ := f.integer("created[gte]")
	types := f.texts("types", 20)
	if err := f.done(); err != nil {
		return nil, err
	}
	return func() (any, *apiError) {
		now := s.now()
		from := max(from, now.Add(-eventTTL).Unix())
		var found []*Event
		for _, e := range slices.Backward(s.events) {
			if e.Created < from {
				break // the others are older
			}
			if !e.ListedAt.After(now) && (types == nil || slices.Contains(types, e.Type)) {
				found = append(found, slices.Repeat([]*Event{e}, e.Times)...)
			}
		}
		slices.SortStableFunc(found, func(a, b *Event) int {
			return cmp.Or(cmp.Compare(b.Created, a.Created), strings.Compare(a.ID, b.ID))
		})
		if after != "" {
			i := slices.IndexFunc(found, func(e *Event) bool { return e.ID == after })
			if i < 0 {
				return nil, missing(http.StatusBadRequest, "starting_after", "event", after)
			}
			found = found[i+1:]
		}
		page := list[*Event]{Object: "list", URL: c.request.URL.Path, HasMore: len(found) > limit, Data: []*Event{}}
		page.Data = append(page.Data, found[:min(limit, len(found))]...)
		return page, nil
	}, nil
}
