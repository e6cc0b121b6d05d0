package api

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/internal/admission"
)

// coalescer does the same work once per second for all requests with an id (R25, bounded outsiders). An
// error, such as a required action, is also returned to the requests of the next second. A timer then
// removes it, because it may contain a client secret. A success is not kept, because later requests
// read its effect from the database.
type coalescer struct {
	works sync.Map // by id
}

func (c *coalescer) do(ctx context.Context, id uuid.UUID, work func(context.Context) error) error {
	do, found := c.works.LoadOrStore(id, sync.OnceValue(func() (err error) {
		defer func() {
			if err == nil {
				c.works.Delete(id)
			} else {
				time.AfterFunc(time.Second, func() { c.works.Delete(id) })
			}
		}()
		return work(context.WithoutCancel(ctx)) // other requests wait for it
	}))
	if found {
		defer admission.Suspend(ctx)()
	}
	return do.(func() error)()
}
