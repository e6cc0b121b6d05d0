package measure

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// Send sends request number i, counted from 0. It returns an error if there is no
// response. It must be safe for concurrent use.
type Send func(ctx context.Context, i int) (status int, err error)

// Closed runs a number of clients until duration or ctx ends. It waits for the requests
// in flight.
func Closed(ctx context.Context, clients int, duration time.Duration, send Send) Report {
	r := recorder{start: time.Now(), send: send}
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil && time.Since(r.start) < duration {
				r.sendOne(ctx, r.next(), time.Now())
			}
		})
	}
	all.Wait()
	return r.report()
}

// tick groups the requests of [Open], because a timer for each of them took as much CPU time
// as the request. Latencies include the wait for the tick.
const tick = 5 * time.Millisecond

// Open sends rate requests per second until duration or ctx ends, and waits for the
// requests in flight. It sends those that are due together, every 5 ms. A request that is due
// while maxInFlight are in flight is dropped.
// Without this limit, the generator would measure its own exhaustion.
func Open(ctx context.Context, rate float64, duration time.Duration, maxInFlight int, send Send) Report {
	r := recorder{start: time.Now(), send: send}
	slots := make(chan struct{}, maxInFlight)
	var all sync.WaitGroup
	for n := range int(rate * duration.Seconds()) {
		at := time.Duration(float64(n) / rate * float64(time.Second))
		if !waitUntil(ctx, r.start.Add((at + tick - 1).Truncate(tick))) {
			break
		}
		select {
		case slots <- struct{}{}:
		default:
			r.dropped++
			continue
		}
		i := r.next()
		all.Go(func() {
			defer func() { <-slots }()
			r.sendOne(ctx, i, r.start.Add(at))
		})
	}
	all.Wait()
	return r.report()
}

// waitUntil returns false if ctx ended first.
func waitUntil(ctx context.Context, t time.Time) bool {
	if d := time.Until(t); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

type recorder struct {
	start   time.Time
	send    Send
	dropped int // only written by Open

	mu       sync.Mutex
	sent     int
	requests []Request
}

func (r *recorder) next() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent++
	return r.sent - 1
}

func (r *recorder) sendOne(ctx context.Context, i int, due time.Time) {
	status, err := r.send(ctx, i)
	request := Request{At: due.Sub(r.start), Latency: time.Since(due), Status: status, Err: err}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, request)
}

func (r *recorder) report() Report {
	return Report{Duration: time.Since(r.start), Dropped: r.dropped, Requests: r.requests}
}

// Client sends orders to one server. It takes half of the CPU time of net/http's client,
// because no goroutine serves its connections. The rest is left to the server, since both
// share the cores.
type Client struct {
	http   fasthttp.HostClient
	url    string
	bearer string
}

// Response is what the measurements need of a response.
type Response struct {
	Status   int
	Replayed bool
}

// NewClient returns a client of the server at address, such as 127.0.0.1:8080.
func NewClient(address, apiKey string) *Client {
	return &Client{
		http: fasthttp.HostClient{
			Addr:                address,
			Dial:                func(address string) (net.Conn, error) { return net.Dial("tcp", address) }, //nolint:noctx // of loopback
			MaxConns:            20_000,
			MaxIdleConnDuration: time.Minute,
			ReadTimeout:         time.Minute,
			// A lost response is an error of the measurement.
			MaxIdemponentCallAttempts: 1,
		},
		url:    "http://" + address + "/v1/orders",
		bearer: "Bearer " + apiKey,
	}
}

// CreateOrder sends POST /v1/orders. An error means that there is no complete response.
func (c *Client) CreateOrder(key string, body []byte) (Response, error) {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	request.SetRequestURI(c.url)
	request.Header.SetMethod(fasthttp.MethodPost)
	request.Header.SetContentType("application/json")
	request.Header.Set("Authorization", c.bearer)
	request.Header.Set("Accept", "application/json, application/problem+json")
	request.Header.Set("Idempotency-Key", key)
	request.SetBodyRaw(body)
	if err := c.http.Do(request, response); err != nil {
		return Response{}, fmt.Errorf("POST /v1/orders: %w", err)
	}
	return Response{
		Status:   response.StatusCode(),
		Replayed: string(response.Header.Peek("Idempotent-Replayed")) == "true",
	}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Request is the result of one request.
type Request struct {
	At      time.Duration // due time, since the start
	Latency time.Duration // from At to the end of the response
	Status  int           // 0 without a response
	Err     error
}

// Report is the result of all requests.
type Report struct {
	Duration time.Duration // until the last response
	Dropped  int           // see [Open]
	Requests []Request     // in the order of completion
}

// Filter returns a report with the requests for which keep returns true.
func (r Report) Filter(keep func(Request) bool) Report {
	var kept []Request
	for _, request := range r.Requests {
		if keep(request) {
			kept = append(kept, request)
		}
	}
	return Report{Duration: r.Duration, Requests: kept}
}

// EndedWithin returns a report of the requests that ended within duration after start. It
// excludes the partial rates at both ends.
func (r Report) EndedWithin(start, duration time.Duration) Report {
	within := r.Filter(func(request Request) bool {
		end := request.At + request.Latency
		return end >= start && end < start+duration
	})
	within.Duration = duration
	return within
}

// WithStatus returns a report of the responses with this status.
func (r Report) WithStatus(status int) Report {
	return r.Filter(func(request Request) bool { return request.Err == nil && request.Status == status })
}

// Statuses counts the requests by status. 0 is no response.
func (r Report) Statuses() map[int]int {
	counts := map[int]int{}
	for _, request := range r.Requests {
		if request.Err != nil {
			request.Status = 0
		}
		counts[request.Status]++
	}
	return counts
}

// Rate returns the requests per second.
func (r Report) Rate() float64 { return float64(len(r.Requests)) / r.Duration.Seconds() }

// Percentiles returns the latency at each percentile p, from 0 to 1, by the nearest-rank
// method. Without requests it is 0.
func (r Report) Percentiles(p ...float64) []time.Duration {
	latencies := make([]time.Duration, len(r.Requests))
	for i, request := range r.Requests {
		latencies[i] = request.Latency
	}
	slices.Sort(latencies)
	percentiles := make([]time.Duration, len(p))
	for i, fraction := range p {
		if n := len(latencies); n > 0 {
			percentiles[i] = latencies[min(max(int(math.Ceil(fraction*float64(n))), 1), n)-1]
		}
	}
	return percentiles
}

// Median returns the median of what get returns.
func Median[T any](all []T, get func(T) float64) float64 {
	values := make([]float64, len(all))
	for i, v := range all {
		values[i] = get(v)
	}
	slices.Sort(values)
	return (values[len(values)/2] + values[(len(values)-1)/2]) / 2
}
