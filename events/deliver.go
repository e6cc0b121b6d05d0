package events

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/jobs"
)

const (
	concurrency = 50
	timeout     = 10 * time.Second // of an attempt
)

// Endpoint is where the events are sent.
type Endpoint struct {
	URL       string
	Secrets   Secrets
	Transport http.RoundTripper
}

// NewWorker returns a worker that delivers due events.
func NewWorker(pool *pgxpool.Pool, to Endpoint, logger *slog.Logger) *jobs.Worker {
	return &jobs.Worker{
		Pool:        pool,
		Logger:      logger,
		Kind:        Kind,
		Do:          to.deliver,
		Timeout:     timeout,
		Concurrency: concurrency,
		Detail:      error.Error,
	}
}

// deliver sends an event, signed (R28, events to the shop). It follows no redirect, and neither stores nor
// logs what the endpoint sends.
func (to Endpoint) deliver(ctx context.Context, j jobs.Job) error {
	body, err := body(j)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("EVENTS_URL is no URL") // err has its value
	}
	request.GetBody = nil // the transport resends nothing by itself (R31, one call, one answer)
	now := time.Now()
	for name, value := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "orders-api", "webhook-id": j.ID.String(),
		"webhook-timestamp": strconv.FormatInt(now.Unix(), 10), "webhook-signature": to.Secrets.sign(j.ID.String(), now, body),
	} {
		request.Header.Set(name, value)
	}
	response, err := to.Transport.RoundTrip(request)
	if err != nil {
		return reason(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode/100 != 2 { // its body is not read: that of a 101 is the connection, which no deadline ends
		return jobs.LaterError{
			Err:   fmt.Errorf("the endpoint responded with status %d", response.StatusCode),
			Pause: retryAfter(response.Header.Get("Retry-After"), now),
		}
	}
	_, _ = io.CopyN(io.Discard, response.Body, 4<<10) // so that the connection can be used again
	return nil
}

// body returns the body of an event. A job with a member that this program does not know waits for a newer
// program (R18, newer versions).
func body(j jobs.Job) ([]byte, error) {
	var data ShopEvent
	decoder := json.NewDecoder(bytes.NewReader(j.Args))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&data); err != nil {
		return nil, fmt.Errorf("the event may be of a newer version: %w", err)
	}
	typ := data.Type
	data.Type = ""
	return json.Marshal(struct {
		ID        uuid.UUID `json:"id"`
		Type      string    `json:"type"`
		Timestamp string    `json:"timestamp"`
		AccountID uuid.UUID `json:"account_id"`
		Data      ShopEvent `json:"data"`
	}{j.ID, typ, j.CreatedAt.UTC().Format("2006-01-02T15:04:05.000000Z"), j.AccountID, data})
}

// reason omits what the other side has sent.
func reason(ctx context.Context, err error) error {
	network, atNetwork := errors.AsType[*net.OpError](err)
	certificate, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("no response in %s", timeout)
	case atNetwork:
		return network
	case untrusted:
		return certificate
	default:
		return errors.New("the connection ended without a response of HTTP")
	}
}

// retryAfter returns 0 if the value is neither seconds nor a time.
func retryAfter(value string, now time.Time) time.Duration {
	if at, err := http.ParseTime(value); err == nil {
		return at.Sub(now)
	}
	seconds, _ := strconv.Atoi(strings.TrimSpace(value)) // beyond its range the largest number
	return time.Duration(min(seconds, 86400)) * time.Second
}

// Secrets sign the events: one secret, or two while the shop changes from one to the other.
type Secrets [][]byte

// ErrInvalidSecrets means that a text has no secrets as Standard Webhooks defines them.
var ErrInvalidSecrets = errors.New("is not whsec_ and the base64 of 24 to 64 bytes, or two of these with a comma between (its value is not shown); " +
	`generate one with echo "whsec_$(openssl rand -base64 32)"`)

// ParseSecrets returns the secrets of a text, or ErrInvalidSecrets.
func ParseSecrets(text string) (Secrets, error) {
	var secrets Secrets
	for secret := range strings.SplitSeq(text, ",") {
		encoded, prefixed := strings.CutPrefix(strings.TrimSpace(secret), "whsec_")
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || !prefixed || len(key) < 24 || len(key) > 64 || len(secrets) == 2 {
			return nil, ErrInvalidSecrets
		}
		secrets = append(secrets, key)
	}
	return secrets, nil
}

// sign returns the header webhook-signature of Standard Webhooks, with a signature by each secret.
func (s Secrets) sign(id string, now time.Time, body []byte) string {
	signatures := make([]string, len(s))
	for i, secret := range s {
		mac := hmac.New(sha256.New, secret)
		_, _ = fmt.Fprintf(mac, "%s.%d.%s", id, now.Unix(), body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(signatures, " ")
}
