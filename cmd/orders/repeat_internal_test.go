package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// An outage of an hour does not fill the log, and the usual pace returns with its end.
func TestRepeat_outage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		runs := 0
		ctx, stop := context.WithTimeout(t.Context(), time.Hour+2*maxErrorPause)
		defer stop()
		begin := time.Now()
		repeat(ctx, "worker", time.Second, slog.New(slog.NewTextHandler(&log, nil)), func(context.Context) error {
			if runs++; time.Since(begin) < time.Hour {
				return errors.New("no database")
			}
			return nil
		})
		failures := bytes.Count(log.Bytes(), []byte("level=ERROR"))
		require.InDelta(t, 65, failures, 5)
		require.Greater(t, runs-failures, 5)
	})
}
