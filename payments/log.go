package payments

import (
	"context"
	"log/slog"
	"time"
)

// logExchange writes the one line about a send.
func (c *Client) logExchange(ctx context.Context, call call, n int, took time.Duration, w *wire, failure *Error) {
	level, outcome := slog.LevelInfo, "answered"
	attrs := []slog.Attr{
		slog.String("call", call.name),
		slog.String("idempotency_key", call.key),
		slog.String("payment_intent", call.intentID),
		slog.Int("send", n),
		slog.Duration("duration", took),
		slog.Int("status", w.status),
		slog.String("request_id", printable(w.header.Get("Request-Id"))),
	}
	if failure != nil {
		outcome = failure.Outcome.String()
		attrs = append(attrs, slog.String("error", failure.Error()))
		switch {
		case failure.NeedsOperator:
			level = slog.LevelError
		case failure.Outcome == Unknown || failure.Outcome == NotExecuted:
			level = slog.LevelWarn
		}
	}
	c.logger.LogAttrs(ctx, level, "payment provider call", append(attrs, slog.String("outcome", outcome))...)
}

// libraryLog takes what stripe-go logs. Only the format string is kept, which
// is the library's own text: its arguments may be a whole answer, client secret
// and all. The line about each exchange is ours (see logExchange), so these are of
// use to somebody who debugs the library, at debug level.
type libraryLog struct{ logger *slog.Logger }

func (l libraryLog) log(level, format string) {
	l.logger.LogAttrs(context.Background(), slog.LevelDebug, "stripe-go",
		slog.String("library_level", level), slog.String("format", format))
}

// Debugf drops the line: it is printed for every answer, and is the answer.
func (l libraryLog) Debugf(string, ...any)          {}
func (l libraryLog) Infof(format string, _ ...any)  { l.log("info", format) }
func (l libraryLog) Warnf(format string, _ ...any)  { l.log("warn", format) }
func (l libraryLog) Errorf(format string, _ ...any) { l.log("error", format) }
