//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-smtp"

	"example.com/orders-api/client"
	"example.com/orders-api/payments/stripetest"
)

const webhookSecret = "whsec_soak"

// provider is the fake Stripe in this process. It delivers events late, repeatedly and
// out of order, settles pending payments, and fails.
type provider struct {
	stripe    *stripetest.Server
	server    *http.Server
	url       string
	addresses []string // of the API
	client    *http.Client
	ctx       context.Context
	events    sync.WaitGroup

	mu        sync.Mutex
	random    *rand.Rand
	faults    []*stripetest.Injection
	calls     map[string]int // by endpoint
	delivered int            // events
	accepted  int
}

func startProvider(ctx context.Context, seed uint64, addresses []string) (*provider, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &provider{
		stripe:    stripetest.New(stripetest.Options{}),
		url:       "http://" + listener.Addr().String(),
		addresses: addresses,
		client:    &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{}},
		ctx:       ctx,
		random:    random(seed, webhookStream),
		calls:     map[string]int{},
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = p.server.Serve(listener) }()
	return p, nil
}

func (p *provider) close() error {
	p.stripe.Close()
	return p.server.Close()
}

func (p *provider) chance(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.random.IntN(n)
}

var objectID = regexp.MustCompile("(pi|re)_[0-9A-Za-z]+")

// ServeHTTP schedules events after a confirm or a refund.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.calls[r.Method+" "+objectID.ReplaceAllString(r.URL.Path, "{id}")]++
	p.mu.Unlock()
	defer func() {
		id, ofIntent := strings.CutPrefix(r.URL.Path, "/v1/payment_intents/")
		if id, confirmed := strings.CutSuffix(id, "/confirm"); confirmed {
			p.schedule(id, "payment_intent.succeeded", "charge.succeeded", "payment_intent.processing")
		} else if ofIntent && r.Method == http.MethodGet {
			_ = p.stripe.Settle(id, true) // a confirm that arrived after its intent was settled
		}
		if id, approved := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/customer/"), "/approve"); approved {
			p.schedule(id, "payment_intent.succeeded", "charge.succeeded")
		}
		if r.Method == http.MethodPost && r.URL.Path == "/v1/refunds" {
			if refunds := p.stripe.Refunds(); len(refunds) > 0 {
				p.schedule(refunds[len(refunds)-1].ID, "refund.updated", "refund.created")
			}
		}
	}()
	p.stripe.ServeHTTP(w, r)
}

// decide sends a customer's decision about a challenge, and reports whether the provider
// accepted it.
func (p *provider) decide(ctx context.Context, action *client.Action, decision string) bool {
	address := p.url + "/customer/" + action.PaymentIntentID + "/" + decision
	form := url.Values{"client_secret": {action.ClientSecret}}.Encode()
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form))
		if err != nil {
			return false
		}
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response, err := p.client.Do(request)
		if err != nil {
			continue
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode == http.StatusNoContent || !bytes.Contains(text, []byte("is locked by a request")) {
			return response.StatusCode == http.StatusNoContent
		}
		pause(ctx, 200*time.Millisecond)
	}
	return false
}

// schedule settles a pending intent or refund after a moment, and delivers its events.
// Some contain the earlier state.
func (p *provider) schedule(id string, types ...string) {
	moment := func(limit int) time.Duration { return time.Duration(p.chance(limit)) * time.Millisecond }
	settle := moment(2000)
	for range p.chance(4) {
		eventType, early, late := types[p.chance(len(types))], moment(3000), moment(6000)
		p.events.Go(func() {
			pause(p.ctx, early)
			if payload, signature, err := p.stripe.Event(webhookSecret, eventType, id); err == nil {
				pause(p.ctx, late)
				p.deliver(payload, signature)
			}
		})
	}
	p.events.Go(func() {
		pause(p.ctx, settle)
		_ = p.stripe.Settle(id, true) // most are not pending
	})
}

// deliver repeats an event until it is accepted, as Stripe does.
func (p *provider) deliver(payload []byte, signature string) {
	for range 5 {
		address := p.addresses[p.chance(len(p.addresses))]
		request, err := http.NewRequestWithContext(p.ctx, http.MethodPost, "http://"+address+"/v1/webhooks/stripe", bytes.NewReader(payload))
		if err != nil {
			return
		}
		request.Header.Set("Stripe-Signature", signature)
		request.Header.Set("Content-Type", "application/json")
		response, err := p.client.Do(request)
		status := 0
		if err == nil {
			_ = response.Body.Close()
			status = response.StatusCode
		}
		p.mu.Lock()
		p.delivered++
		if status == http.StatusOK {
			p.accepted++
		}
		p.mu.Unlock()
		if status == http.StatusOK || p.ctx.Err() != nil {
			return
		}
		pause(p.ctx, 2*time.Second)
	}
}

// rule returns a random fault of a random endpoint. A stored 500 without effect delays a
// refund for a day, because the refund may still succeed (R12). Refunds therefore never
// get that fault.
func rule(r *rand.Rand) stripetest.Rule {
	faults := []stripetest.Fault{
		stripetest.CloseBefore, stripetest.RateLimit, stripetest.Unavailable, stripetest.KeyInUse, stripetest.LockTimeout,
		stripetest.ErrorAfter, stripetest.NextPageError, stripetest.HoldArrival, stripetest.HoldRunning, stripetest.HoldResponse,
		stripetest.CloseAfter, stripetest.ResetAfter, stripetest.CutBody, stripetest.BadGateway,
	}
	const confirm = "POST /v1/payment_intents/{id}/confirm"
	endpoint := []string{
		"POST /v1/refunds", "GET /v1/refunds", "POST /v1/payment_intents", "GET /v1/payment_intents/{id}", "GET /v1/payment_intents/search", confirm, confirm,
	}[r.IntN(7)]
	if endpoint != "POST /v1/refunds" {
		faults = append(faults, stripetest.ErrorBefore, stripetest.ErrorLater)
	}
	return stripetest.Rule{Fault: faults[r.IntN(len(faults))], Endpoint: endpoint, Times: 1 + r.IntN(3)}
}

func (p *provider) fail(r *rand.Rand) {
	i := p.stripe.Inject(rule(r))
	p.mu.Lock()
	p.faults = append(p.faults, i)
	p.mu.Unlock()
	// Up to two leases: the response can arrive after another run has taken over the key.
	time.AfterFunc(time.Duration(r.Int64N(int64(2*leaseDuration))), i.Release)
}

// release ends the faults so far.
func (p *provider) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.faults {
		i.Release()
	}
}

// recovered ends all faults, waits for the scheduled events, and settles pending refunds
// without an event. reconcile --fix must find them.
func (p *provider) recovered() {
	p.release()
	p.events.Wait()
	for _, refund := range p.stripe.Refunds() {
		_ = p.stripe.Settle(refund.ID, true) // most are not pending
	}
}

func (p *provider) triggered() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, i := range p.faults {
		n += i.Triggered()
	}
	return n
}

// chargeable reports whether an intent is charged or can be.
func (p *provider) chargeable(ctx context.Context, intent string) bool {
	var object struct{ Status string }
	_, body, err := p.call(ctx, http.MethodGet, "/v1/payment_intents/"+intent, nil)
	return err != nil || json.Unmarshal(body, &object) != nil || object.Status != "canceled"
}

// refund refunds what is left of a charge, as an operator does in Stripe's dashboard. A
// repetition finds nothing left.
func (p *provider) refund(ctx context.Context, intent string) error {
	status, body, err := p.call(ctx, http.MethodPost, "/v1/refunds", url.Values{"payment_intent": {intent}})
	if err == nil && status != http.StatusOK && !strings.Contains(string(body), "charge_already_refunded") {
		err = errors.New(string(body))
	}
	return err
}

// call repeats a request to the provider while it fails.
func (p *provider) call(ctx context.Context, method, path string, form url.Values) (status int, body []byte, err error) {
	for range 60 {
		request, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(form.Encode()))
		if err != nil {
			return 0, nil, err
		}
		request.Header.Set("Authorization", "Bearer sk_test_operator")
		if method == http.MethodPost {
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		if response, err := p.client.Do(request); err == nil {
			body, err = io.ReadAll(response.Body)
			_ = response.Body.Close()
			status = response.StatusCode
			if temporary := []int{http.StatusConflict, http.StatusTooManyRequests}; err == nil && status < 500 && !slices.Contains(temporary, status) {
				return status, body, nil
			}
		}
		if !pause(ctx, 500*time.Millisecond) {
			return 0, nil, ctx.Err()
		}
	}
	return 0, nil, errors.New("the provider fails")
}

// mailServer counts receipts by recipient. Some get a temporary error, and some are
// accepted without a response.
type mailServer struct {
	address string
	server  *smtp.Server

	mu       sync.Mutex
	receipts map[string]int
	mails    int
}

func startMail() (*mailServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &mailServer{address: listener.Addr().String(), receipts: map[string]int{}}
	m.server = smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &mailSession{server: m}, nil }))
	m.server.Domain = "mail.example.com"
	m.server.ErrorLog = log.New(io.Discard, "", 0)
	go func() { _ = m.server.Serve(listener) }()
	return m, nil
}

func (m *mailServer) accepted() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.receipts)
}

type mailSession struct {
	server *mailServer
	to     string
}

func (*mailSession) Reset()                               {}
func (*mailSession) Logout() error                        { return nil }
func (*mailSession) Mail(string, *smtp.MailOptions) error { return nil }

func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = to
	return nil
}

// Data rejects every 50th mail, and accepts another one but returns an error.
func (s *mailSession) Data(r io.Reader) error {
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	m := s.server
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mails++
	busy := &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "try again later"}
	if m.mails%50 == 0 {
		return busy
	}
	m.receipts[s.to]++
	if m.mails%50 == 25 {
		return busy // the worker sends this receipt again
	}
	return nil
}
