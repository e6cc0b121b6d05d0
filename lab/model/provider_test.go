package model_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"example.com/orders-api/payments"
)

const (
	visa          = "pm_card_visa"
	mastercard    = "pm_card_mastercard"
	challengeCard = "pm_card_authenticationRequired"
	declinedCard  = "pm_card_visa_chargeDeclined"
)

var errNoResponse = errors.New("no response")

// provider is the way to the fake, on which runs stop before their calls.
type provider struct {
	base  http.RoundTripper
	cards []string // by intent

	mu        sync.Mutex
	intents   []string          // ids, oldest first
	cardOf    map[string]string // by provider key of a create
	forgotten map[string]int    // by kind of call, how often the provider forgot its key
	held      map[string]*http.Request
}

func newProvider(cards []string) *provider {
	return &provider{
		base: payments.NewTransport(), cards: cards,
		cardOf: map[string]string{}, forgotten: map[string]int{}, held: map[string]*http.Request{},
	}
}

// callOf returns the gate of a call.
func callOf(req *http.Request) string {
	path := strings.TrimPrefix(req.URL.Path, "/v1/payment_intents")
	switch {
	case req.Method == http.MethodPost && path == "":
		return atCreate
	case strings.HasSuffix(path, "/confirm"):
		return atConfirm
	case strings.HasSuffix(path, "/cancel"):
		return atCancel
	case path == "" || path == "/search":
		return atSearch
	default:
		return atRead
	}
}

func (p *provider) RoundTrip(req *http.Request) (*http.Response, error) {
	r := runOf(req.Context())
	if r == nil { // of the test
		return p.base.RoundTrip(req)
	}
	if r.dead.Load() || r.offline.Load() {
		return nil, errNoResponse
	}
	call := callOf(req)
	isRead := req.Method == http.MethodGet
	if !isRead || !r.reading.Load() {
		r.stop(call)
		r.reading.Store(isRead)
	}
	switch {
	case r.dead.Load():
		return nil, errNoResponse
	case r.verdict == answered:
		return p.execute(req, r.hidden)
	case r.verdict == lost:
		response, err := p.execute(req, nil)
		if err != nil {
			return nil, err
		}
		_ = response.Body.Close()
	case r.verdict == delayed:
		if err := p.hold(call, req); err != nil {
			return nil, err
		}
	}
	r.offline.Store(true)
	return nil, errNoResponse
}

// hold keeps a call that arrives later.
func (p *provider) hold(call string, req *http.Request) error {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[call] = &http.Request{
		Method: req.Method, URL: req.URL, Header: req.Header.Clone(), Host: req.Host,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
	return nil
}

// arrive executes the held call.
func (p *provider) arrive(call string) error {
	p.mu.Lock()
	req := p.held[call]
	p.mu.Unlock()
	response, err := p.execute(req, nil)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// forget makes later calls of the kind use a key that the fake has not seen.
func (p *provider) forget(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgotten[call]++
}

// execute sends a call to the fake.
func (p *provider) execute(req *http.Request, hidden []string) (*http.Response, error) {
	call := callOf(req)
	sent := req.Clone(req.Context())
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.forgotten[call]; n > 0 {
		sent.Header.Set("Idempotency-Key", fmt.Sprintf("%s-forgotten-%d", req.Header.Get("Idempotency-Key"), n))
	}
	if call == atCreate {
		if err := p.setCard(sent); err != nil {
			return nil, err
		}
	}
	response, err := p.base.RoundTrip(sent)
	if err != nil || call != atCreate && call != atSearch {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	if call == atCreate {
		err = p.addIntent(body)
	} else {
		body, err = without(body, hidden)
	}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response.Header.Del("Content-Length")
	return response, err
}

// setCard replaces the card of a create by the one of its intent.
func (p *provider) setCard(req *http.Request) error {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return err
	}
	key := req.Header.Get("Idempotency-Key")
	if p.cardOf[key] == "" {
		p.cardOf[key] = p.cards[len(p.intents)]
	}
	form.Set("payment_method", p.cardOf[key])
	encoded := form.Encode()
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader(encoded)), int64(len(encoded))
	return nil
}

func (p *provider) addIntent(body []byte) error {
	var intent struct{ ID string }
	if err := json.Unmarshal(body, &intent); err != nil {
		return err
	}
	if !slices.Contains(p.intents, intent.ID) {
		p.intents = append(p.intents, intent.ID)
	}
	return nil
}

// without removes the hidden intents from a list.
func without(body []byte, hidden []string) ([]byte, error) {
	var list map[string]any
	if err := json.Unmarshal(body, &list); err != nil || list["data"] == nil {
		return body, err
	}
	list["data"] = slices.DeleteFunc(list["data"].([]any), func(intent any) bool {
		id, _ := intent.(map[string]any)["id"].(string)
		return slices.Contains(hidden, id)
	})
	return json.Marshal(list)
}
