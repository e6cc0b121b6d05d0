package api

import (
	"container/list"
	"context"
	"net/http"
	"sync"
	"time"

	"example.com/orders-api/internal/limiter"
)

// limitReads executes a handler that only reads with a permit of the limiter.
func limitReads(l *limiter.Limiter) func(handlerFunc) handlerFunc {
	return func(next handlerFunc) handlerFunc {
		return func(w http.ResponseWriter, r *http.Request) error {
			return l.Do(r.Context(), accountID(r.Context()), func(ctx context.Context) error { return next(w, r.WithContext(ctx)) })
		}
	}
}

// bodyReads bounds the bodies that are read before their sender is known, for the
// sake of memory. Beyond the limit, a new read interrupts the one that has taken
// the longest, so slow senders delay only each other (R25).
type bodyReads struct {
	limit int

	mu      sync.Mutex
	reading list.List // of *bodyRead, longest first
}

type bodyRead struct {
	connection  *http.ResponseController
	interrupted bool
}

// read is readBody within the bound.
func (b *bodyReads) read(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	own := &bodyRead{connection: http.NewResponseController(w)}
	element := b.begin(own)
	body, err := readBody(w, r, limit)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading.Remove(element)
	if own.interrupted {
		return nil, errBodyCut // also a body that just arrived: the connection is unusable
	}
	return body, err
}

func (b *bodyReads) begin(own *bodyRead) *list.Element {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reading.Len() >= b.limit {
		longest := b.reading.Remove(b.reading.Front()).(*bodyRead)
		longest.interrupted = true
		_ = longest.connection.SetReadDeadline(time.Unix(1, 0)) // long ago
	}
	return b.reading.PushBack(own)
}
