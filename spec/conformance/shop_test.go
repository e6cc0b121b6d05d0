package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// flaws are what a shop does wrong. Without any, it charges once, in a form that is not
// that of the profile: 400 for a reused or expired key, X-Idempotency-Key, no problem
// documents and no Retry-After.
type flaws struct {
	Memory          bool // responses are cached in the process, and nothing else is
	Throws          bool // a request that is not JSON gets 500
	ProcessLock     bool // the claims are in the process, only the responses in the store
	NoLock          bool // the key is looked up, then executed, then stored
	ReleasedAtOnce  bool // the claim ends before the first call of the provider
	ReleasedEarly   bool // the claim ends before the charge
	ChargesAnyway   bool // a reused or expired key is executed, and then rejected
	NestedIgnored   bool // the fingerprint has only the top-level members
	FailureStored   bool // a 500 is stored
	AccountIgnored  bool // all accounts share their keys
	Forgets         bool // an expired key is a new one
	ChargePerRun    bool // the provider's key is random, and a late run still stores its result
	LooksFirst      bool // a run looks for the charge of an earlier one, and charges with a random key
	NeverContinued  bool // a key whose run was killed stays in progress
	FailsOpen       bool // a request is executed if the store cannot be read
	Volatile        bool // the store keeps its records in memory only
	RejectsOnOutage bool // a request is rejected for good if the store cannot be read

	Claim    time.Duration // the lifetime of a claim; default: 1 s
	Lifetime time.Duration // of a key; default: unlimited
}

// shop serves POST and GET /orders.
type shop struct {
	processConfig
	store storeClient
	pays  http.Client // calls the provider

	mu     sync.Mutex
	cache  map[string]*shopRecord // with Memory
	claims map[string]bool        // with ProcessLock
}

// shopRecord is what is stored of a key.
type shopRecord struct {
	Fingerprint string
	Claimed     time.Time // until when
	Charge      string    // the provider's key; it is committed before the charge
	Response    *shopResponse
}

type shopResponse struct {
	Status int
	Body   string
}

func newShop(c processConfig) *shop {
	if c.Flaws.Claim == 0 {
		c.Flaws.Claim = time.Second
	}
	return &shop{
		processConfig: c,
		store:         storeClient{url: c.Store, http: http.Client{Timeout: 5 * time.Second}},
		pays:          http.Client{Timeout: time.Minute},
		cache:         make(map[string]*shopRecord), claims: make(map[string]bool),
	}
}

type order struct {
	Amount int         `json:"amount"`
	Card   string      `json:"card"`
	Items  []orderItem `json:"items"`
}

type orderItem struct {
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

func refuse(status int, text string) shopResponse {
	return shopResponse{status, fmt.Sprintf(`{"error":%q}`, text)}
}

var shopAccounts = map[string]string{"Bearer secret-one": "one", "Bearer secret-uno": "one", "Bearer secret-two": "two"}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	account := shopAccounts[r.Header.Get("Authorization")]
	var response shopResponse
	switch {
	case account == "":
		response = refuse(http.StatusUnauthorized, "unauthorized")
	case r.URL.Path != "/orders":
		response = refuse(http.StatusNotFound, "not found")
	case r.Method == http.MethodGet:
		response = s.list(r.Context(), account)
	default:
		response = s.create(r, account, body)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(response.Status)
	_, _ = io.WriteString(w, response.Body)
}

func (s *shop) list(ctx context.Context, account string) shopResponse {
	var found json.RawMessage
	if _, err := s.store.call(ctx, http.MethodGet, "prefix="+url.QueryEscape("order "+account+" "), "", &found); err != nil {
		return refuse(http.StatusServiceUnavailable, "no store")
	}
	return shopResponse{http.StatusOK, `{"data":` + string(found) + `}`}
}

// run is one execution of a request.
type shopRun struct {
	account, key, name string
	order              order
	fingerprint        string
	record             *shopRecord
	version            int
}

func (s *shop) create(r *http.Request, account string, body []byte) shopResponse {
	run := shopRun{account: account, key: r.Header.Get("X-Idempotency-Key")}
	if len(run.key) < 16 {
		return refuse(http.StatusBadRequest, "a key is required")
	}
	if s.Flaws.Throws && r.Header.Get("Content-Type") != "application/json" {
		return refuse(http.StatusInternalServerError, "no body")
	}
	if json.Unmarshal(body, &run.order) != nil || run.order.Amount < 1 || len(run.order.Items) == 0 || run.order.Items[0].Quantity < 1 {
		return refuse(http.StatusBadRequest, "invalid order")
	}
	run.name = "key " + account + " " + run.key
	if s.Flaws.AccountIgnored {
		run.name = "key " + run.key
	}
	covered := run.order
	if s.Flaws.NestedIgnored {
		covered.Items = nil
	}
	text, _ := json.Marshal(covered)
	run.fingerprint = fmt.Sprintf("%x", sha256.Sum256(text))
	if s.Flaws.Memory {
		return s.cached(r.Context(), run)
	}
	// A client that goes away does not stop its request.
	return s.decide(context.WithoutCancel(r.Context()), run)
}

// cached is a middleware that keeps the responses that it has sent.
func (s *shop) cached(ctx context.Context, run shopRun) shopResponse {
	s.mu.Lock()
	found := s.cache[run.name]
	s.mu.Unlock()
	if found != nil {
		return *found.Response
	}
	response, made := s.execute(context.WithoutCancel(ctx), &run)
	if made.Name != "" {
		_, _ = s.store.put(context.WithoutCancel(ctx), made)
	}
	if ctx.Err() == nil && response.Status < http.StatusInternalServerError {
		s.mu.Lock()
		s.cache[run.name] = &shopRecord{Response: &response}
		s.mu.Unlock()
	}
	return response
}

func (s *shop) decide(ctx context.Context, run shopRun) shopResponse {
	if s.Flaws.ProcessLock {
		s.mu.Lock()
		busy := s.claims[run.name]
		s.claims[run.name] = true
		s.mu.Unlock()
		if busy {
			return refuse(http.StatusConflict, "in progress")
		}
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.claims, run.name)
		}()
	}
	err := s.lookup(ctx, &run)
	record := run.record
	switch {
	case err != nil && s.Flaws.FailsOpen:
		response, _ := s.execute(ctx, &run)
		return response
	case err != nil && s.Flaws.RejectsOnOutage:
		return refuse(http.StatusBadRequest, "unknown key")
	case err != nil:
		return refuse(http.StatusServiceUnavailable, "no store")
	case record == nil:
	case record.Response != nil && s.expired(run.key):
		return s.rejectKey(ctx, run, "expired")
	case record.Fingerprint != run.fingerprint:
		return s.rejectKey(ctx, run, "reused")
	case record.Response != nil:
		return *record.Response
	case time.Now().Before(record.Claimed), s.Flaws.NeverContinued && !record.Claimed.IsZero():
		return refuse(http.StatusConflict, "in progress")
	}
	return s.claim(ctx, run)
}

// rejectKey answers a request whose key cannot be used.
func (s *shop) rejectKey(ctx context.Context, run shopRun, reason string) shopResponse {
	if s.Flaws.ChargesAnyway {
		if _, made := s.execute(ctx, &run); made.Name != "" {
			_, _ = s.store.put(ctx, made)
		}
	}
	return refuse(http.StatusBadRequest, "the key is "+reason)
}

// expired reports whether the command expire was run for the key.
func (s *shop) expired(key string) bool {
	text, _ := os.ReadFile(filepath.Join(s.Folder, "expired"))
	return strings.Contains(string(text), key+"\n")
}

func (s *shop) lookup(ctx context.Context, run *shopRun) error {
	var found storeEntry
	status, err := s.store.call(ctx, http.MethodGet, "name="+url.QueryEscape(run.name), "", &found)
	if err != nil || status == http.StatusNotFound {
		return err
	}
	run.version, run.record = found.Version, new(shopRecord)
	if err := json.Unmarshal(found.Value, run.record); err != nil {
		return err
	}
	if s.Flaws.Forgets && run.record.Response != nil && s.expired(run.key) {
		run.record = nil
	}
	return nil
}

// claim takes the key, executes the request and stores its response.
func (s *shop) claim(ctx context.Context, run shopRun) shopResponse {
	chargeKey := newKey()
	if run.record != nil {
		chargeKey = run.record.Charge // of the interrupted run
	}
	run.record = &shopRecord{Fingerprint: run.fingerprint, Claimed: time.Now().Add(s.Flaws.Claim), Charge: chargeKey}
	if !s.Flaws.NoLock && !s.Flaws.ProcessLock {
		if response := s.save(ctx, &run); response != nil {
			return *response
		}
	}
	if s.Flaws.ReleasedAtOnce {
		s.release(ctx, &run)
	}
	response, made := s.execute(ctx, &run)
	if response.Status >= http.StatusInternalServerError && !s.Flaws.FailureStored {
		s.release(ctx, &run)
		return response
	}
	run.record.Response = &response
	var more []storeEntry
	if made.Name != "" {
		more = append(more, made)
	}
	if conflict := s.save(ctx, &run, more...); conflict != nil {
		return *conflict
	}
	return response
}

// save writes the record, and an order in the same transaction. Only a shop without a flaw
// requires that no other run has taken the key over.
func (s *shop) save(ctx context.Context, run *shopRun, more ...storeEntry) *shopResponse {
	value, _ := json.Marshal(run.record)
	e := storeEntry{Name: run.name, Value: value, Version: run.version, Lifetime: s.Flaws.Lifetime}
	if s.Flaws.ChargePerRun && run.record.Response != nil {
		e.Version = anyVersion
	}
	version, err := s.store.put(ctx, append(more, e)...)
	var refused shopResponse
	switch {
	case errors.Is(err, errVersion):
		refused = refuse(http.StatusConflict, "in progress")
	case err != nil:
		refused = refuse(http.StatusServiceUnavailable, "no store")
	default:
		run.version = version
		return nil
	}
	return &refused
}

// release lets the next request take the key.
func (s *shop) release(ctx context.Context, run *shopRun) {
	run.record.Claimed = time.Time{}
	_ = s.save(ctx, run)
}

// execute charges, and returns the response and the order.
func (s *shop) execute(ctx context.Context, run *shopRun) (shopResponse, storeEntry) {
	chargeKey := newKey()
	if run.record != nil && !s.Flaws.ChargePerRun {
		chargeKey = run.record.Charge
	}
	id := "or_" + chargeKey[:12]
	if s.Flaws.LooksFirst {
		if paid, ok := s.lookForCharge(ctx, id); ok {
			return s.created(run, paid)
		}
		chargeKey = newKey()
	}
	body, _ := json.Marshal(map[string]string{"card": run.order.Card, "order": id})
	if status, _ := s.pay(ctx, "/authorisations", chargeKey, body); status != http.StatusCreated {
		return refuse(http.StatusInternalServerError, "no provider"), storeEntry{}
	}
	if s.Flaws.ReleasedEarly {
		s.release(ctx, run)
	}
	status, paid := s.pay(ctx, "/charges", chargeKey, body)
	switch status {
	case http.StatusCreated:
	case http.StatusPaymentRequired:
		return refuse(http.StatusPaymentRequired, "declined"), storeEntry{}
	default:
		return refuse(http.StatusInternalServerError, "no provider"), storeEntry{}
	}
	return s.created(run, paid)
}

func (s *shop) created(run *shopRun, paid charge) (shopResponse, storeEntry) {
	text, _ := json.Marshal(map[string]any{"id": paid.Order, "charge": paid.ID, "amount": run.order.Amount})
	made := storeEntry{Name: "order " + run.account + " " + paid.Order, Value: text, Version: anyVersion}
	return shopResponse{http.StatusCreated, string(text)}, made
}

func (s *shop) lookForCharge(ctx context.Context, order string) (charge, bool) {
	var list struct{ Data []charge }
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Provider+"/charges", nil)
	if err != nil {
		return charge{}, false
	}
	response, err := s.pays.Do(request)
	if err != nil {
		return charge{}, false
	}
	defer func() { _ = response.Body.Close() }()
	_ = json.NewDecoder(response.Body).Decode(&list)
	i := slices.IndexFunc(list.Data, func(c charge) bool { return c.Order == order })
	if i < 0 {
		return charge{}, false
	}
	return list.Data[i], true
}

func (s *shop) pay(ctx context.Context, path, key string, body []byte) (int, charge) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Provider+path, bytes.NewReader(body))
	if err != nil {
		return 0, charge{}
	}
	request.Header.Set("Idempotency-Key", key)
	response, err := s.pays.Do(request)
	if err != nil {
		return 0, charge{}
	}
	defer func() { _ = response.Body.Close() }()
	var made charge
	_ = json.NewDecoder(response.Body).Decode(&made)
	return response.StatusCode, made
}
