package api

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/operations"
)

// reader counts reads, each of which takes 300 ms. The first returns an action.
type reader struct {
	shared[*operations.ActionRequiredError]
	count int
	err   error // of later reads
}

func (r *reader) action(ctx context.Context) (*operations.ActionRequiredError, error) {
	return r.get(ctx, uuid.Nil, func(ctx context.Context) (*operations.ActionRequiredError, error) {
		r.count++
		first := r.count == 1
		<-time.After(300 * time.Millisecond)
		if first {
			return &operations.ActionRequiredError{Action: json.RawMessage("1")}, ctx.Err()
		}
		return nil, r.err
	})
}

func (r *reader) kept() bool {
	_, kept := r.reads.Load(uuid.Nil)
	return kept
}

func TestShared_usedForASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &reader{}
		for _, wait := range []time.Duration{0, 999 * time.Millisecond} {
			<-time.After(wait)
			required, err := r.action(t.Context())
			require.NoError(t, err)
			require.NotNil(t, required)
		}
		require.Equal(t, 1, r.count)
		<-time.After(time.Millisecond)
		synctest.Wait()
		require.False(t, r.kept(), "no client secret is kept, even if there is no other request")

		required, err := r.action(t.Context())
		require.NoError(t, err)
		require.Nil(t, required)
		require.Equal(t, 2, r.count)
		require.False(t, r.kept(), "the status of the key has changed")
	})
}

// A read outlives the request that started it, but a request does not outlive its client.
func TestShared_clientGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &reader{}
		gone, cancel := context.WithCancel(t.Context())
		go func() { _, _ = r.action(gone) }()
		synctest.Wait()
		waiting := make(chan error)
		go func() {
			_, err := r.action(gone)
			waiting <- err
		}()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-waiting, context.Canceled)
		required, err := r.action(t.Context())
		require.NoError(t, err)
		require.NotNil(t, required)
		require.Equal(t, 1, r.count)
		<-time.After(time.Second)
	})
}

func TestShared_panic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &shared[*operations.ActionRequiredError]{}
		read := func(context.Context) (*operations.ActionRequiredError, error) {
			<-time.After(time.Second)
			panic("a mistake")
		}
		go func() {
			defer func() { _ = recover() }()
			_, _ = a.get(t.Context(), uuid.Nil, read)
		}()
		synctest.Wait()
		_, err := a.get(t.Context(), uuid.Nil, read)
		require.ErrorIs(t, err, errReadPanicked)
		<-time.After(time.Second)
	})
}
