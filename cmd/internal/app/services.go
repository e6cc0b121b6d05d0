package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"example.com/orders-api/payments"
	"example.com/orders-api/receipts"
)

// Logger returns a logger that writes to w.
func (l *Log) Logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: l.Level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// ProviderTransport returns a transport that uses the proxy of HTTPS_PROXY.
func ProviderTransport() *http.Transport {
	transport := payments.NewTransport()
	transport.Proxy = http.ProxyFromEnvironment
	return transport
}

// tryTimeout bounds the tries of the provider and of the mail server at start.
const tryTimeout = 5 * time.Second

// tried returns the error of a setting that can never work, and logs that of a service that may
// only be unavailable.
func tried(ctx context.Context, logger *slog.Logger, setting string, never bool, err error) error {
	if never {
		return fmt.Errorf("%s: %w", setting, err)
	}
	if err != nil {
		logger.WarnContext(ctx, setting+": not available, and tried again when it is needed", "error", err)
	}
	return nil
}

// TryProvider checks that the provider accepts its key.
func (a *App) TryProvider(ctx context.Context) error {
	a.Logger.InfoContext(ctx, "payment provider", "provider", a.Config.ProviderURL(), "mode", a.Config.Mode())
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	rejected, err := a.Payments.Check(ctx)
	return tried(ctx, a.Logger, "STRIPE_SECRET_KEY", rejected, err)
}

// Mailer returns the mailer of SMTP_URL, and tries it.
func (m *Mail) Mailer(ctx context.Context, logger *slog.Logger) (receipts.Mailer, error) {
	host, _ := os.Hostname()
	mailer, err := receipts.NewSMTP(string(m.SMTPURL), m.HelloName(host))
	if err != nil {
		return nil, err
	}
	logger.Info("receipts are sent by mail", "server", mailer.String())
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	err = mailer.Check(ctx)
	return mailer, tried(ctx, logger, "SMTP_URL", errors.Is(err, receipts.ErrCredentials), err)
}
