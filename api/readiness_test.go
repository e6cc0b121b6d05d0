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
		down := errors.New("the database is down")
		r := api.NewReadiness(func(context.Context) error {
			checks++
			<-time.After(300 * time.Millisecond)
			return down
		})
		results := make(chan error, 100)
		for range cap(results) {
			go func() { results <- r.Check(t.Context()) }()
		}
		for range cap(results) {
			require.ErrorIs(t, <-results, down)
		}
		down = nil
		<-time.After(999 * time.Millisecond)
		require.Error(t, r.Check(t.Context()))
		require.Equal(t, 1, checks)
		<-time.After(time.Millisecond)
		synctest.Wait()
		require.NoError(t, r.Check(t.Context()))
	})
}

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

func TestReadiness_drain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := api.NewReadiness(func(context.Context) error {
			<-release
			return nil
		})
		result := make(chan error)
		go func() { result <- r.Check(t.Context()) }()
		synctest.Wait()
		r.Drain()
		require.EqualError(t, r.Check(t.Context()), "shutting down")
		close(release)
		require.EqualError(t, <-result, "shutting down")
	})
}
