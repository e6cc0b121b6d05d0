package api

import (
	"container/list"
	"net/http"
	"sync"
	"time"

	"example.com/orders-api/idempotency"
)

// reading gives a request that only reads its place among all that read.
func reading(reads *idempotency.Gate) func(handlerFunc) handlerFunc {
	return func(next handlerFunc) handlerFunc {
		return func(w http.ResponseWriter, r *http.Request) error {
			place, err := reads.Enter(accountID(r.Context()))
			if err != nil {
				return err
			}
			defer place.Leave()
			return next(w, r)
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
