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

// shared does the same work once per second for all requests with an id (R25, bounded outsiders).
type shared struct {
	works sync.Map // of *sharedWork, by id
}

type sharedWork struct {
	done chan struct{} // closed when err is set
	err  error
}

var errWorkPanicked = errors.New("the request that worked for others panicked")

// do works, or waits for the request that does, and returns the error of the work. Later requests
// get an error for sharedMaxAge. A timer then removes it, because it may hold a client secret. A
// success is not kept, because it changes what they see.
func (s *shared) do(ctx context.Context, id uuid.UUID, work func(context.Context) error) error {
	own := &sharedWork{done: make(chan struct{}), err: errWorkPanicked}
	if existing, found := s.works.LoadOrStore(id, own); found {
		other := existing.(*sharedWork)
		defer admission.Suspend(ctx)()
		select {
		case <-other.done:
			return other.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() {
		if own.err == nil {
			s.works.Delete(id)
		} else {
			time.AfterFunc(sharedMaxAge, func() { s.works.Delete(id) })
		}
		close(own.done)
	}()
	own.err = work(context.WithoutCancel(ctx)) // other requests wait for it
	return own.err
}
