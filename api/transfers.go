package api

import (
	"container/list"
	"net/http"
	"sync"
	"time"
)

// transfers bounds the bodies in transit. Beyond the limit, a new transfer interrupts the oldest
// one, so slow clients delay only each other (R25).
type transfers struct {
	limit       int // sum of the sizes
	setDeadline func(*http.ResponseController, time.Time) error

	mu     sync.Mutex
	total  int
	active list.List // of *transfer, longest first
}

type transfer struct {
	connection  *http.ResponseController
	size        int
	interrupted bool
}

func (t *transfers) do(w http.ResponseWriter, size int, work func()) (interrupted bool) {
	element := t.begin(&transfer{connection: http.NewResponseController(w), size: size})
	defer func() { interrupted = t.end(element) }()
	work()
	return interrupted // as end reports
}

func (t *transfers) begin(own *transfer) *list.Element {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.total+own.size > t.limit && t.active.Len() > 0 {
		longest := t.remove(t.active.Front())
		longest.interrupted = true
		_ = t.setDeadline(longest.connection, time.Unix(1, 0)) // long ago
	}
	t.total += own.size
	return t.active.PushBack(own)
}

func (t *transfers) end(element *list.Element) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := element.Value.(*transfer)
	if !own.interrupted {
		t.remove(element)
	}
	return own.interrupted
}

func (t *transfers) remove(element *list.Element) *transfer {
	removed := t.active.Remove(element).(*transfer)
	t.total -= removed.size
	return removed
}

func limitResponses(next http.Handler) http.Handler {
	sent := &transfers{limit: maxResponses, setDeadline: (*http.ResponseController).SetWriteDeadline}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&limitedWriter{w, sent}, r)
	})
}

const (
	maxResponses  = 32 << 20 // bytes
	smallResponse = 4 << 10  // bytes; net/http's buffer for a connection
)

type limitedWriter struct {
	http.ResponseWriter
	sent *transfers
}

func (w *limitedWriter) Write(body []byte) (n int, err error) {
	if len(body) <= smallResponse {
		return w.ResponseWriter.Write(body)
	}
	w.sent.do(w.ResponseWriter, len(body), func() { n, err = w.ResponseWriter.Write(body) })
	return n, err
}

// Unwrap is for [http.ResponseController].
func (w *limitedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
