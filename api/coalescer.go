package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/internal/admission"
)

const maxErrorAge = time.Second

// coalescer does the same work once per second for all requests with an id (R25, bounded outsiders).
type coalescer struct {
	works sync.Map // of *coalescedWork, by id
}

type coalescedWork struct {
	done chan struct{} // closed when err is set
	err  error
}

var errWorkPanicked = errors.New("the request that worked for others panicked")

// do does the work, or waits for the request that does it, and returns its error. An error, such as
// a required action, is also returned to later requests until maxErrorAge. A timer then removes it,
// because it may contain a client secret. A success is not kept, because later requests read its
// effect from the database.
func (c *coalescer) do(ctx context.Context, id uuid.UUID, work func(context.Context) error) error {
	own := &coalescedWork{done: make(chan struct{}), err: errWorkPanicked}
	if existing, found := c.works.LoadOrStore(id, own); found {
		other := existing.(*coalescedWork)
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
			c.works.Delete(id)
		} else {
			time.AfterFunc(maxErrorAge, func() { c.works.Delete(id) })
		}
		close(own.done)
	}()
	own.err = work(context.WithoutCancel(ctx)) // other requests wait for it
	return own.err
}
