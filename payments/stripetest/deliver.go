package stripetest

import (
	"cmp"
	"log/slog"
	"net"
	"net/http"
	"strconv"
)

// deliver writes an answer, unless a fault keeps it from the client. The
// faults of this moment strike requests that ran or were replayed.
func (s *Server) deliver(w http.ResponseWriter, c *call, a *answer) {
	var struck []*Injection
	s.mu.Lock()
	if c.record.Executed || c.record.Replayed {
		struck = s.strike(c, onDelivery)
	}
	s.mu.Unlock()

	var fault Fault
	for _, i := range struck {
		if !s.wait(c, i) {
			a = nil
		}
		fault = i.rule.Fault
	}
	switch fault {
	case CloseAfter, ResetAfter:
		a = nil
	case BadGateway:
		a = htmlAnswer(http.StatusBadGateway)
	}
	s.note(c, a)

	switch {
	case fault == ResetAfter:
		reset(w)
	case a == nil:
		panic(http.ErrAbortHandler)
	case fault == CutBody:
		a.writeHeader(w, c)
		_, _ = w.Write(a.body[:len(a.body)/2]) // the client may have gone, which nobody here minds
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		a.writeHeader(w, c)
		_, _ = w.Write(a.body)
	}
}

// note records the status that the client will see, before it can see it.
func (s *Server) note(c *call, a *answer) {
	s.mu.Lock()
	if a != nil {
		c.record.Status = a.status
	}
	r := c.record.copy()
	s.mu.Unlock()

	s.log.LogAttrs(c.request.Context(), slog.LevelInfo, "stripe stand-in",
		slog.String("method", r.Method),
		slog.String("path", r.Path),
		slog.Int("status", r.Status),
		slog.String("request_id", r.ID),
		slog.String("idempotency_key", r.Key),
		slog.String("order_id", r.OrderID),
		slog.Bool("replayed", r.Replayed),
		slog.Any("faults", r.Faults),
	)
}

func (a *answer) writeHeader(w http.ResponseWriter, c *call) {
	h := w.Header()
	set := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	switch {
	case a.html:
		h.Set("Content-Type", "text/html; charset=utf-8")
	case a.status == http.StatusUnauthorized: // refused before it had an id
		h.Set("Content-Type", "application/json")
		h.Set("WWW-Authenticate", `Bearer realm="Stripe"`)
	default:
		h.Set("Content-Type", "application/json")
		h.Set("Request-Id", c.record.ID)
		h.Set("Stripe-Version", cmp.Or(c.request.Header.Get("Stripe-Version"), "2024-06-20"))
		set("Idempotency-Key", c.key)
		set("Original-Request", a.original)
		set("Stripe-Should-Retry", a.retry)
		if a.replayed {
			h.Set("Idempotent-Replayed", "true")
		}
	}
	w.WriteHeader(a.status)
}

// reset closes a connection so that the client sees ECONNRESET, or plainly
// where there is no TCP connection to be had.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
