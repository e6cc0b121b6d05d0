package app

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
func TestLoop_outage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		runs := 0
		ctx, stop := context.WithTimeout(t.Context(), time.Hour+30*time.Second)
		defer stop()
		begin := time.Now()
		Loop{Command: "worker", Every: time.Second, Work: func(context.Context) error {
			if runs++; time.Since(begin) < time.Hour {
				return errors.New("no database")
			}
			return nil
		}}.Run(ctx, slog.New(slog.NewTextHandler(&log, nil)))
		failures := bytes.Count(log.Bytes(), []byte("level=ERROR"))
		require.Equal(t, 360, failures)
		require.Greater(t, runs-failures, 20)
	})
}
