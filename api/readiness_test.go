package api_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
)

func TestReadiness_oneCheckForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		checks := 0
		r := api.NewReadiness(func(context.Context) error {
			checks++
			<-time.After(300 * time.Millisecond)
			return nil
		})
		results := make(chan error, 100)
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		for range cap(results) {
			go func() { results <- r.Check(t.Context()) }()
		}
		synctest.Wait()
		require.ErrorIs(t, r.Check(impatient), context.DeadlineExceeded, "a probe waits no longer than its context")
		for range cap(results) {
			require.NoError(t, <-results)
		}
		require.NoError(t, r.Check(t.Context()))
		require.Equal(t, 1, checks)
	})
}

func TestReadiness_resultIsUsedForASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("the database is down")
		result := down
		r := api.NewReadiness(func(context.Context) error { return result })
		require.ErrorIs(t, r.Check(t.Context()), down)
		result = nil
		<-time.After(999 * time.Millisecond)
		require.ErrorIs(t, r.Check(t.Context()), down)
		<-time.After(time.Millisecond)
		require.NoError(t, r.Check(t.Context()))
	})
}

// The check outlives the probe that started it, but not its own deadline.
func TestReadiness_checkHasItsOwnDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := api.NewReadiness(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		gone, cancel := context.WithCancel(t.Context())
		go func() { _ = r.Check(gone) }()
		synctest.Wait()
		cancel()
		begin := time.Now()
		require.ErrorIs(t, r.Check(t.Context()), context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, time.Since(begin))
	})
}

// Neither a recent result nor one that arrives later makes a draining process ready.
func TestReadiness_drain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{}, 2)
		r := api.NewReadiness(func(context.Context) error {
			<-release
			return nil
		})
		release <- struct{}{}
		require.NoError(t, r.Check(t.Context()))
		<-time.After(time.Second)
		result := make(chan error)
		go func() { result <- r.Check(t.Context()) }()
		synctest.Wait()
		r.Drain()
		require.EqualError(t, r.Check(t.Context()), "shutting down")
		release <- struct{}{}
		require.EqualError(t, <-result, "shutting down")
	})
}
