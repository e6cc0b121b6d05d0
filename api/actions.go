package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/internal/admission"
	"example.com/orders-api/operations"
)

const actionMaxAge = time.Second

// actions shares one read of a key's action per second, because a tenant that polls would use
// up the provider's rate limit for all (R25). A timer removes each result, because an idle
// process must not keep a client secret.
type actions struct {
	reads sync.Map // of *actionRead, by the key's id
}

type readActionFunc func(context.Context) (*operations.ActionRequiredError, error)

type actionRead struct {
	done     chan struct{} // closed when the fields below are set
	required *operations.ActionRequiredError
	err      error
}

var errReadPanicked = errors.New("the request that read the action panicked")

func (a *actions) get(ctx context.Context, keyID uuid.UUID, read readActionFunc) (*operations.ActionRequiredError, error) {
	own := &actionRead{done: make(chan struct{}), err: errReadPanicked}
	if existing, found := a.reads.LoadOrStore(keyID, own); found {
		shared := existing.(*actionRead)
		defer admission.Suspend(ctx)()
		select {
		case <-shared.done:
			return shared.required, shared.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() {
		if own.required == nil && own.err == nil { // the key has changed
			a.reads.Delete(keyID)
		} else {
			time.AfterFunc(actionMaxAge, func() { a.reads.Delete(keyID) })
		}
		close(own.done)
	}()
	// Without the client's cancellation, because other requests wait for the result.
	own.required, own.err = read(context.WithoutCancel(ctx))
	return own.required, own.err
}
