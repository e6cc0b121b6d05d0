package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
)

// handlerFunc returns an error that becomes a problem response.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

// ServeHTTP adapts h to net/http.
func (h handlerFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h(w, r); err != nil {
		writeProblem(w, r, err)
	}
}

// writeJSON encodes v first, so that an error leaves no partial response.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := httpjson.EncodeJSON(v)
	if err != nil {
		return fmt.Errorf("encode response: %w", err)
	}
	write(w, status, "application/json", body)
	return nil
}

// statusClientGone is the status in log and metrics of a request whose client has closed the
// connection, as in nginx. It is no 5xx, because those alert.
const statusClientGone = 499

func clientGone(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}

func writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	if clientGone(r.Context(), err) {
		w.WriteHeader(statusClientGone)
		return
	}
	p := problemOf(err).forRequest(r, err)
	entry := entryOf(r.Context())
	p.RequestID = entry.requestID
	entry.problem(p, err)
	if p.Status == http.StatusRequestEntityTooLarge {
		// Otherwise net/http would read the rest of the body before it sends the response, because chi's
		// ResponseWriter hides that the limit was exceeded.
		w.Header().Set("Connection", "close")
	}
	if p.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	body, _ := httpjson.EncodeJSON(p) // strings, numbers and UUIDs cannot fail
	write(w, p.Status, "application/problem+json", body)
}

// writeResult writes the stored response of a key (R14, the same bytes).
func writeResult(w http.ResponseWriter, result idempotency.Result) {
	header := w.Header()
	for name, value := range result.Response.Headers {
		header.Set(name, value)
	}
	if result.Replayed {
		header.Set("Idempotent-Replayed", "true")
	}
	write(w, result.Response.Status, header.Get("Content-Type"), result.Response.Body)
}

func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // A client that has gone sends the request again.
}
