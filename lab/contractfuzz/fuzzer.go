package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

type fuzzer struct {
	contract *contract
	base     *url.URL
	apiKey   string
	secret   string // of the webhook, "" if unknown
	provider string // base URL of the fake Stripe, "" if unknown
	nginx    bool   // the server is behind nginx
	run      string // prefix of the keys of this run
	seed     uint64
	client   *http.Client

	mu         sync.Mutex
	requests   map[string]int // by operation and status
	checks     int
	total      int
	violations map[string]*violation
	paid       map[string]bool // ids of orders with a 201 response
}

type violation struct {
	text     string
	count    int
	exchange *exchange
	sequence int
}

func newFuzzer(c *contract, base *url.URL, apiKey string, seed uint64) *fuzzer {
	return &fuzzer{
		contract: c, base: base, apiKey: apiKey, seed: seed,
		client: &http.Client{
			Transport:     &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // no redirect is documented
			Timeout:       2 * time.Minute,
		},
		requests: map[string]int{}, violations: map[string]*violation{}, paid: map[string]bool{},
	}
}

// connection sends the sequences number, number+of, number+2·of … until it has sent its
// share of the requests.
func (f *fuzzer) connection(ctx context.Context, number, of, requests int) {
	sent := 0
	for n := number; sent < requests && ctx.Err() == nil; n += of {
		sent += f.sequence(ctx, n)
	}
}

// sequence sends one sequence and returns the number of requests. It depends only on the
// seed and its number.
func (f *fuzzer) sequence(ctx context.Context, number int) int {
	source := rand.New(rand.NewPCG(f.seed, uint64(number)))
	s := &sequence{fuzzer: f, ctx: ctx, number: number}
	s.g = generator{source, pick(generator{Rand: source}, []style{anyStyle, anyStyle, anyStyle, anyStyle, anyStyle, anyStyle, anyStyle, smallest, smallest, largest})}
	chosen := s.g.IntN(100)
	for _, kind := range kinds() {
		if chosen -= kind.percent; chosen < 0 {
			kind.run(s)
			break
		}
	}
	return s.sent
}

type sequence struct {
	*fuzzer
	ctx    context.Context
	number int
	keys   int
	g      generator

	sentMu sync.Mutex
	sent   int
}

func (s *sequence) request(id string, path ...string) request {
	o := s.contract.operations[id]
	if o == nil {
		panic("the contract has no operation " + id)
	}
	r := request{operation: o, method: o.method, target: fill(o.path, path), header: http.Header{}}
	if o.secured {
		r = r.set("Authorization", "Bearer "+s.apiKey)
	}
	if s.g.chance(10) {
		r = r.set("X-Request-Id", pick(s.g, []string{"fuzz-" + strconv.Itoa(s.number), "short", "not an id", strings.Repeat("x", 64), strings.Repeat("x", 65)}))
	}
	return r
}

func fill(path string, values []string) string {
	for _, value := range values {
		start, end := strings.Index(path, "{"), strings.Index(path, "}")
		if start < 0 {
			break
		}
		path = path[:start] + url.PathEscape(value) + path[end+1:]
	}
	return path
}

func (s *sequence) key() string {
	s.keys++
	key := fmt.Sprintf("%s.%s.%s.", s.run, strconv.FormatInt(int64(s.number), 36), strconv.FormatInt(int64(s.keys), 36))
	if s.g.chance(3) {
		key = `"` + key // valid only in quotes
	}
	length := pick(s.g, []int{16, 16, 17, 36, 36, 36, 255, 20 + s.g.IntN(200)})
	for len(key) < length {
		key += string(rune('!' + s.g.IntN('~'-'!'+1)))
	}
	return key
}

// reference returns one that no other purchase has.
func (s *sequence) reference() string {
	s.keys++
	name := fmt.Sprintf("%s %s %s ", s.run, strconv.FormatInt(int64(s.number), 36), strconv.FormatInt(int64(s.keys), 36))
	for range s.g.IntN(64 - len(name)) {
		name += string(rune(' ' + s.g.IntN('~'-' '+1)))
	}
	return name
}

// keyed returns the request with the key in one of its forms.
func (s *sequence) keyed(r request, key string) request {
	if strings.HasPrefix(key, `"`) || s.g.chance(30) {
		return r.set("Idempotency-Key", quoted(key))
	}
	return r.set("Idempotency-Key", key)
}

func quoted(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

// send sends a request and checks its response. It retries after a rejection because of
// overload, as the contract demands. It returns nil without a response.
func (s *sequence) send(r request) *exchange {
	for attempt := 0; ; attempt++ {
		x := s.try(r)
		if x == nil || x.status != http.StatusTooManyRequests && x.status != http.StatusServiceUnavailable {
			if x != nil {
				x.resent = attempt > 0
			}
			return x
		}
		if attempt == 10 {
			s.fail(x, "still status %d after %d requests", x.status, attempt)
			return nil
		}
		s.pause(x)
	}
}

// pause waits for the duration of Retry-After.
func (s *sequence) pause(x *exchange) {
	seconds, _ := strconv.Atoi(x.header.Get("Retry-After"))
	select {
	case <-time.After(time.Duration(min(seconds, 5)) * time.Second):
	case <-s.ctx.Done():
	}
}

func (s *sequence) try(r request) *exchange {
	x, err := s.do(s.ctx, r)
	s.sentMu.Lock()
	s.sent++
	s.sentMu.Unlock()
	if err != nil {
		if s.ctx.Err() == nil {
			s.fail(&exchange{request: r}, "no response: %v", err)
		}
		return nil
	}
	if s.nginx && nginxRejects(r) {
		if x.status != http.StatusBadRequest {
			s.fail(x, "nginx passed it on")
		}
		return nil
	}
	broken := s.contract.check(x)
	s.count(x)
	for _, text := range broken {
		s.fail(x, "%s", text)
	}
	return x
}

// nginxRejects reports whether nginx answers by itself, because it finds the request malformed.
func nginxRejects(r request) bool {
	return r.target == "*" || strings.Contains(r.target, "%00") || r.method == http.MethodTrace ||
		r.method != strings.ToUpper(r.method) || len(r.header["Authorization"]) > 1
}

func (f *fuzzer) do(ctx context.Context, r request) (*exchange, error) {
	sent := (&http.Request{
		Method: r.method,
		URL:    &url.URL{Scheme: f.base.Scheme, Host: f.base.Host, Opaque: r.target},
		Host:   f.base.Host,
		Header: r.header.Clone(),
	}).WithContext(ctx)
	if r.body != nil {
		sent.Body, sent.ContentLength = io.NopCloser(bytes.NewReader(r.body)), int64(len(r.body))
	}
	got, err := f.client.Do(sent)
	if err != nil {
		return nil, err
	}
	defer func() { _ = got.Body.Close() }()
	reply, err := io.ReadAll(got.Body)
	return &exchange{request: r, status: got.StatusCode, header: got.Header, reply: reply}, err
}

func (f *fuzzer) count(x *exchange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests[fmt.Sprintf("%-22s %d", x.operation.id, x.status)]++
	f.total++
}

func (s *sequence) fail(x *exchange, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	kind, _, _ := strings.Cut(text, "\n")
	id := fmt.Sprint(x.operation.id, " ", x.status, " ", short(kind))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.violations[id] == nil {
		s.violations[id] = &violation{text: text, exchange: x, sequence: s.number}
	}
	s.violations[id].count++
}

func (s *sequence) expect(x *exchange, holds bool, format string, args ...any) bool {
	s.mu.Lock()
	s.checks++
	s.mu.Unlock()
	if x != nil && !holds {
		s.fail(x, format, args...)
	}
	return x != nil && holds
}

func (s *sequence) problem(x *exchange, fault string, status int, slugs ...string) bool {
	if x == nil {
		return false
	}
	return s.expect(x, x.status == status && (x.method == http.MethodHead || slices.Contains(slugs, x.slug())),
		"%s: expected %d %s", fault, status, strings.Join(slugs, " or "))
}
