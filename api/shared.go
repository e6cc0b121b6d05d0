package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/internal/admission"
)

const sharedMaxAge = time.Second

// shared gives all requests with an id the result of one read per second (R25).
type shared[T comparable] struct {
	reads sync.Map // of *sharedRead, by id
}

type sharedRead[T comparable] struct {
	done  chan struct{} // closed when the fields below are set
	value T
	err   error
}

var errReadPanicked = errors.New("the request that read for others panicked")

// get does not keep a zero value. A timer removes each result, because an idle process must
// not keep a client secret.
func (s *shared[T]) get(ctx context.Context, id uuid.UUID, read func(context.Context) (T, error)) (T, error) {
	var zero T
	own := &sharedRead[T]{done: make(chan struct{}), err: errReadPanicked}
	if existing, found := s.reads.LoadOrStore(id, own); found {
		other := existing.(*sharedRead[T])
		defer admission.Suspend(ctx)()
		select {
		case <-other.done:
			return other.value, other.err
		case <-ctx.Done():
			return zero, ctx.Err()
		}
	}
	defer func() {
		if own.value == zero && own.err == nil {
			s.reads.Delete(id)
		} else {
			time.AfterFunc(sharedMaxAge, func() { s.reads.Delete(id) })
		}
		close(own.done)
	}()
	// Without the client's cancellation, because other requests wait for the result.
	own.value, own.err = read(context.WithoutCancel(ctx))
	return own.value, own.err
}
