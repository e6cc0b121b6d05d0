package events

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
)

const (
	kind = "event"

	perEndpoint = 20               // events at a time
	concurrency = 1000             // so that hundreds of endpoints that do not respond delay no others
	timeout     = 10 * time.Second // of an attempt

	recordTimeout = 5 * time.Second

	maxRetryAfter = 24 * time.Hour
	disableAfter  = 72 * time.Hour // of failures without a success
)

// Sent is the outcome of an event that the endpoint accepted.
const Sent = "sent"

// NewWorkers returns the worker of the endpoints that respond, and that of those that fail, for which the
// first one must not wait.
func NewWorkers(pool *pgxpool.Pool, keys Keys, logger *slog.Logger) []*jobs.Worker {
	public, loopback := newTransport(isPublic), newTransport(netip.Addr.IsLoopback)
	worker := func(due string, probes bool) *jobs.Worker {
		d := &deliverer{pool, keys, public, loopback, probes, logger}
		return &jobs.Worker{
			Pool:        pool,
			Logger:      logger,
			Kind:        kind,
			Done:        Sent,
			Due:         due,
			Do:          d.deliver,
			Timeout:     timeout,
			Concurrency: concurrency,
			Detail:      error.Error,
			Backoff:     jobs.Backoff,
		}
	}
	return []*jobs.Worker{
		worker(fmt.Sprintf(dueSQL, "", perEndpoint, "= 0"), false),
		worker(fmt.Sprintf(dueSQL, "DESC", 1, "> 0"), true),
	}
}

// dueSQL selects up to some events of each endpoint that may be tried, so that the accounts take turns (R28,
// events to the shop). The probe of an endpoint that fails is its latest event, because an older one may be the reason. A run_at far
// in the future was set while the database's clock ran ahead (R8, the database's clock).
const dueSQL = `
SELECT j.account_id, j.id, j.attempt, '', NULL
  FROM event_endpoints AS e
 CROSS JOIN LATERAL (
           SELECT account_id, id, attempt, run_at
             FROM staged_jobs
            WHERE account_id = e.account_id
              AND kind = 'event'
              AND failed_at IS NULL
              AND (run_at <= $1 OR run_at > $2)
            ORDER BY run_at %s
            LIMIT %d
       ) AS j
 WHERE e.disabled_at IS NULL
   AND e.attempt %s
   AND (e.run_at <= $1 OR e.run_at > $2::timestamptz + interval '2 days')
 ORDER BY row_number() OVER (PARTITION BY j.account_id ORDER BY j.run_at), j.run_at
 LIMIT $3`

type deliverer struct {
	pool             *pgxpool.Pool
	keys             Keys
	public, loopback http.RoundTripper
	probes           bool
	logger           *slog.Logger
}

// delivery is an event on its way to its endpoint.
type delivery struct {
	Endpoint

	StagedAt time.Time
	Recorded bool      // the endpoint has failed or recovered since the event was staged
	Now      time.Time // the database's time
}

func (d *deliverer) deliver(ctx context.Context, j jobs.Job) error {
	rows, _ := d.pool.Query(ctx, `
SELECT `+endpointColumns+`,
       j.created_at AS staged_at,
       e.run_at > j.created_at AS recorded,
       now() AS now
  FROM event_endpoints AS e
  JOIN staged_jobs AS j
    ON j.account_id = e.account_id
   AND j.id = $2
 WHERE e.account_id = $1`, j.AccountID, j.ID)
	to, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[delivery])
	if err != nil {
		return fmt.Errorf("read the event's endpoint: %w", err)
	}
	body, err := body(j, to.StagedAt)
	if err != nil {
		return err
	}
	failed := d.post(ctx, to.Endpoint, j.ID.String(), to.Now, body)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout) // post may have used up the time
	defer cancel()
	if failed != nil {
		return errors.Join(failed, d.recordFailure(ctx, j, to, failed))
	}
	if to.Attempt == 0 {
		return nil
	}
	_, err = d.pool.Exec(ctx, `
UPDATE event_endpoints
   SET attempt       = 0,
       run_at        = now(),
       failing_since = NULL,
       last_error    = NULL
 WHERE account_id = $1
   AND attempt > 0`, j.AccountID)
	return err
}

func body(j jobs.Job, staged time.Time) ([]byte, error) {
	var data map[string]string
	if err := json.Unmarshal(j.Args, &data); err != nil {
		return nil, fmt.Errorf("%w: the job is no event: %w", jobs.ErrPermanent, err)
	}
	typ := data["type"]
	delete(data, "type")
	return json.Marshal(struct {
		ID        string            `json:"id"`
		Type      string            `json:"type"`
		Timestamp string            `json:"timestamp"`
		Data      map[string]string `json:"data"`
	}{j.ID.String(), typ, staged.UTC().Format("2006-01-02T15:04:05.000000Z"), data})
}

// failure is why an endpoint has not accepted an event. It contains nothing of the response but the status.
type failure struct {
	error
	gone       bool
	retryAfter time.Duration
}

// post sends an event, signed (R28, events to the shop). It neither stores nor logs the response's body.
func (d *deliverer) post(ctx context.Context, to Endpoint, id string, now time.Time, body []byte) *failure {
	signature, err := d.keys.sign(to, id, now, body)
	if err != nil {
		return &failure{error: err}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, bytes.NewReader(body))
	if err != nil {
		return &failure{error: ErrInvalidURL} // err has the URL
	}
	request.GetBody = nil // the transport resends nothing by itself (R31, one sender)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "orders-api",
		"webhook-id": id, "webhook-timestamp": strconv.FormatInt(now.Unix(), 10), "webhook-signature": signature,
	} {
		request.Header.Set(name, value)
	}
	transport := d.public
	if request.URL.Scheme == "http" {
		transport = d.loopback
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return &failure{error: reason(ctx, err)}
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode/100 == 2 { // the body of a 101 is the connection itself, so the deadline would not end reading it
		_, _ = io.CopyN(io.Discard, response.Body, 4<<10) // so that the connection can be used again
		return nil
	}
	return &failure{
		error:      fmt.Errorf("the endpoint responded with status %d", response.StatusCode),
		gone:       response.StatusCode == http.StatusGone,
		retryAfter: retryAfter(response.Header.Get("Retry-After"), now),
	}
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
		return min(at.Sub(now), maxRetryAfter)
	}
	seconds, err := strconv.Atoi(strings.TrimSpace(value))
	if err != nil {
		return 0
	}
	return time.Duration(min(seconds, int(maxRetryAfter.Seconds()))) * time.Second
}

// recordFailure delays all events of the endpoint. Failures of the same moment count once, and an event that
// fails again while others are accepted delays only itself. The first failure of an event may not have been
// recorded, for example because the database was unavailable.
func (d *deliverer) recordFailure(ctx context.Context, j jobs.Job, at delivery, failed *failure) error {
	if !d.probes && !failed.gone && (at.Attempt > 0 || j.Attempt > 1 && at.Recorded) {
		return nil
	}
	since := at.Now
	if at.FailingSince != nil {
		since = *at.FailingSince
	}
	disable := failed.gone || at.Now.Sub(since) >= disableAfter
	tag, err := d.pool.Exec(ctx, `
UPDATE event_endpoints
   SET attempt       = attempt + 1,
       run_at        = now() + $4::interval,
       failing_since = $5,
       last_error    = $6,
       disabled_at   = now() + $7::interval
 WHERE account_id = $1
   AND attempt = $2
   AND url = $3`, j.AccountID, at.Attempt, at.URL, max(jobs.Backoff(at.Attempt+1), failed.retryAfter), since,
		postgres.CleanText(failed.Error(), 500), postgres.NowIf(disable))
	if err == nil && disable && tag.RowsAffected() == 1 {
		d.logger.ErrorContext(ctx, "event endpoint disabled", "account_id", j.AccountID, "endpoint_id", at.ID, "error", failed)
	}
	return err
}
