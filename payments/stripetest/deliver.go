package stripetest

import (
	"cmp"
	"net"
	"net/http"
	"strconv"
)

func (s *Server) deliver(w http.ResponseWriter, c *call, resp *response) {
	var triggered []*Injection
	s.mu.Lock()
	if c.record.Executed || c.record.Replayed {
		triggered = s.trigger(c, onDelivery)
	}
	s.mu.Unlock()

	var fault Fault
	for _, i := range triggered {
		if !s.wait(c, i) {
			resp = nil
		}
		fault = i.rule.Fault
	}
	switch fault {
	case CloseAfter, ResetAfter:
		resp = nil
	case BadGateway:
		resp = htmlResponse(http.StatusBadGateway)
	}
	if resp != nil {
		s.mu.Lock()
		c.record.Status = resp.status // before the client gets it
		s.mu.Unlock()
	}

	switch {
	case fault == ResetAfter:
		reset(w)
	case resp == nil:
		panic(http.ErrAbortHandler)
	case fault == CutBody:
		resp.writeHeader(w, c)
		_, _ = w.Write(resp.body[:len(resp.body)/2]) // the client may have closed the connection
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		resp.writeHeader(w, c)
		_, _ = w.Write(resp.body)
	}
}

func (resp *response) writeHeader(w http.ResponseWriter, c *call) {
	h := w.Header()
	set := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(resp.body)))
	switch {
	case resp.html:
		h.Set("Content-Type", "text/html; charset=utf-8")
	case resp.status == http.StatusUnauthorized: // without a request id
		h.Set("Content-Type", "application/json")
		h.Set("WWW-Authenticate", `Bearer realm="Stripe"`)
	default:
		h.Set("Content-Type", "application/json")
		h.Set("Request-Id", c.record.ID)
		h.Set("Stripe-Version", cmp.Or(c.request.Header.Get("Stripe-Version"), "2024-06-20"))
		set("Idempotency-Key", c.key)
		set("Original-Request", resp.original)
		set("Stripe-Should-Retry", resp.retry)
		if resp.replayed {
			h.Set("Idempotent-Replayed", "true")
		}
	}
	w.WriteHeader(resp.status)
}

// reset makes the client fail with ECONNRESET.
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
