package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// provider is the payment provider behind every implementation. Each POST of a handler is a
// charge, unless the handler sends an Idempotency-Key of its own.
type provider struct {
	mu      sync.Mutex
	charges []charge
	keys    map[string]charge
	outage  bool
}

// firstCharge makes the ids long enough to be told from other numbers.
const firstCharge = 100001

type charge struct {
	ID      string `json:"id"`
	Account string `json:"account"`
	Amount  int    `json:"amount"`
}

type chargeRequest struct {
	Account string `json:"account"`
	Amount  int    `json:"amount"`
	Card    string `json:"card"`
	Delay   int    `json:"delay_ms"` // before the charge, and again after it
}

func (p *provider) create(w http.ResponseWriter, r *http.Request) {
	var request chargeRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		respond(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	if p.interrupted() {
		respond(w, http.StatusServiceUnavailable, map[string]string{"error": "the provider has an outage"})
		return
	}
	delay := time.Duration(request.Delay) * time.Millisecond
	time.Sleep(delay) // also after the client has disconnected: a provider has received the request
	if request.Card == "declined" {
		respond(w, http.StatusPaymentRequired, map[string]string{"error": "declined"})
		return
	}
	made := p.add(request, r.Header.Get("Idempotency-Key"))
	time.Sleep(delay)
	respond(w, http.StatusCreated, made)
}

// add returns the first charge of a key. An empty key is none.
func (p *provider) add(request chargeRequest, key string) charge {
	p.mu.Lock()
	defer p.mu.Unlock()
	if made, ok := p.keys[key]; ok && key != "" {
		return made
	}
	made := charge{fmt.Sprintf("ch_%d", firstCharge+len(p.charges)), request.Account, request.Amount}
	p.charges = append(p.charges, made)
	if p.keys == nil {
		p.keys = map[string]charge{}
	}
	p.keys[key] = made
	return made
}

// list returns the charges of ?account=.
func (p *provider) list(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := []charge{}
	for _, one := range p.charges {
		if one.Account == r.FormValue("account") {
			found = append(found, one)
		}
	}
	respond(w, http.StatusOK, map[string]any{"data": found})
}

func (p *provider) interrupted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outage
}

func (p *provider) interrupt(outage bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outage = outage
}

func respond(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}
