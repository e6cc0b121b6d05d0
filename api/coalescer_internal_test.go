package api

import (
	"cmp"
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
)

// worker counts how often it works, for 300 ms each time. At first an action is required.
type worker struct {
	coalescer
	count int
}

func (w *worker) work(ctx context.Context) error {
	return w.do(ctx, uuid.Nil, func(ctx context.Context) error {
		w.count++
		first := w.count == 1
		<-time.After(300 * time.Millisecond)
		if first {
			return cmp.Or[error](ctx.Err(), &httpjson.ActionRequiredError{Action: json.RawMessage("1")})
		}
		return nil
	})
}

func (w *worker) kept() bool {
	_, kept := w.works.Load(uuid.Nil)
	return kept
}

// The work outlives the request that started it, because others wait for its result.
func TestCoalescer_usedForASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &worker{}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, w.work(gone), idempotency.ErrActionRequired)
		<-time.After(999 * time.Millisecond)
		require.ErrorIs(t, w.work(t.Context()), idempotency.ErrActionRequired)
		require.Equal(t, 1, w.count)
		<-time.After(time.Millisecond)
		synctest.Wait()
		require.False(t, w.kept(), "no client secret is kept, even if there is no other request")

		require.NoError(t, w.work(t.Context()))
		require.Equal(t, 2, w.count)
		require.False(t, w.kept(), "the status of the key has changed")
	})
}
