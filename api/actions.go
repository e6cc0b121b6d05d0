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

// actionMaxAge is how long the result of a read is used.
const actionMaxAge = time.Second

// actions lets all requests about a key share one read of its action per second, because a
// tenant that polls would use up the provider's rate limit for all tenants (R25). A timer
// removes each result, because an idle process must not keep a client secret.
type actions struct {
	mu    sync.Mutex
	reads map[uuid.UUID]*actionRead // by the key's id
}

type readActionFunc func(context.Context) (*operations.ActionRequiredError, error)

type actionRead struct {
	done     chan struct{} // closed when the fields below are set
	required *operations.ActionRequiredError
	err      error
}

var errReadPanicked = errors.New("the request that read the action panicked")

// get returns the result of read, or of another request's read.
func (a *actions) get(ctx context.Context, keyID uuid.UUID, read readActionFunc) (*operations.ActionRequiredError, error) {
	a.mu.Lock()
	shared, found := a.reads[keyID]
	if !found {
		shared = &actionRead{done: make(chan struct{}), err: errReadPanicked}
		a.reads[keyID] = shared
	}
	a.mu.Unlock()
	if found {
		defer admission.Suspend(ctx)()
		select {
		case <-shared.done:
			return shared.required, shared.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() {
		if shared.required == nil && shared.err == nil { // the key has changed
			a.remove(keyID)
		} else {
			time.AfterFunc(actionMaxAge, func() { a.remove(keyID) })
		}
		close(shared.done)
	}()
	// Without the client's cancellation, because other requests wait for the result.
	shared.required, shared.err = read(context.WithoutCancel(ctx))
	return shared.required, shared.err
}

func (a *actions) remove(keyID uuid.UUID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.reads, keyID)
}
