package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// newClient returns a client that opens a connection for each request. On a connection
// that is used again, net/http would repeat a request by itself.
func newClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			DisableKeepAlives:   true,
			DisableCompression:  true,
			MaxIdleConnsPerHost: -1,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// newKey returns a random key of 32 characters.
func newKey() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // it never fails
	return hex.EncodeToString(random[:])
}

// request is a request of the operation, with changes.
type request struct {
	keys       []string // one header line each
	body       string
	query      string
	header     map[string]string // replaces the header fields of the operation; "" removes one
	credential map[string]string // default: the account
	noAccount  bool              // send no credential
	address    string            // another one of the service
	through    string            // the URL of a proxy
	cut        string            // where that proxy breaks the connection
	intent     string            // see attempt.Intent
	other      *otherOperation
}

// exchange is a request and its response, or the error instead of a response.
type exchange struct {
	number       int // of its attempt
	keyHeader    string
	busy         int // the status for a key in progress
	method, path string
	keys         []string
	sentBody     string
	sent, ended  time.Time

	status int
	header http.Header
	body   []byte
	err    error
}

// send sends a request and records it, so that its effects are counted.
func (s *suite) send(ctx context.Context, r request) *exchange {
	s.sending.Add(1)
	defer s.sending.Done()
	o := s.p.Operation
	method, path, headers, body := o.Method, o.Path, o.Headers, r.body
	if r.other != nil {
		method, path, headers, body = r.other.Method, r.other.Path, r.other.Headers, r.other.Body
	}
	header := make(http.Header)
	set := func(headers map[string]string) {
		for name, value := range headers {
			header.Set(name, value)
			if value == "" {
				header.Del(name)
			}
		}
	}
	set(headers)
	switch {
	case r.noAccount:
	case r.credential != nil:
		set(r.credential)
	default:
		set(s.p.Account)
	}
	set(r.header)
	if len(r.keys) > 0 {
		header[http.CanonicalHeaderKey(s.p.KeyHeader)] = r.keys
	}
	base := cmp.Or(r.address, s.p.URL)
	if r.through != "" {
		base = r.through
	}
	if r.query != "" {
		path += "?" + r.query
	}
	_, busy := s.p.Dialect.status(inProgress)
	e := &exchange{
		number: int(s.requests.Add(1)), keyHeader: s.p.KeyHeader, busy: busy,
		method: method, path: path, keys: r.keys, sentBody: body,
	}
	s.exchange(ctx, e, base+path, header)
	a := s.attempt(r, e)
	s.sent(e, a.Answer)
	s.record(event{Attempt: a})
	return e
}

func (s *suite) attempt(r request, e *exchange) *attempt {
	a := &attempt{
		Number: e.number, Intent: r.intent, Method: e.method, Path: e.path, Keys: e.keys, Body: e.sentBody, Cut: r.cut, Address: r.address,
		Sent: s.history.since(e.sent), Ended: s.history.since(e.ended), Status: e.status, ID: e.id(s),
		Replayed: e.replayed(s), Response: string(e.body),
	}
	a.Who, a.Account = s.sender(r)
	if e.err != nil {
		a.Error = e.err.Error()
	}
	switch {
	case e.success(s) && a.ID != "":
		a.Answer = succeeded
	case e.temporary(), e.success(s): // without its length, a response that a kill cut off looks complete
		a.Answer = open
	case e.rejected():
		a.Answer = rejected
	default:
		a.Answer = unclear
	}
	return a
}

// sender returns the member of the profile file with the credential, and the account.
func (s *suite) sender(r request) (who, account string) {
	switch {
	case r.noAccount && len(s.p.Account) > 0:
		return "no credential", "no credential"
	case r.credential == nil:
		return ownAccount, ownAccount
	case maps.Equal(r.credential, s.p.SecondCredential):
		return "second_credential", ownAccount
	case maps.Equal(r.credential, s.p.RestrictedCredential):
		return "restricted_credential", ownAccount
	case maps.Equal(r.credential, s.p.SecondAccount):
		return "second_account", "second_account"
	default:
		return "a wrong credential", "a wrong credential"
	}
}

// get reads a resource of the server.
func (s *suite) get(ctx context.Context, address string, headers map[string]string) *exchange {
	header := make(http.Header)
	for name, value := range headers {
		header.Set(name, value)
	}
	e := &exchange{method: http.MethodGet, path: address}
	if u, err := url.Parse(address); err == nil {
		e.path = u.RequestURI()
	}
	s.exchange(ctx, e, address, header)
	return e
}

func (s *suite) exchange(ctx context.Context, e *exchange, address string, header http.Header) {
	e.sent = time.Now()
	defer func() { e.ended = time.Now() }()
	outgoing, err := http.NewRequestWithContext(ctx, e.method, address, strings.NewReader(e.sentBody))
	if err != nil {
		e.err = err
		return
	}
	outgoing.Header = header
	response, err := s.http.Do(outgoing)
	if err != nil {
		s.timedOut(e, address, err)
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err // without the address
		}
		e.err = err
		return
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.timedOut(e, address, err)
		e.err = fmt.Errorf("the response ends early: %w", err)
		return
	}
	e.status, e.header, e.body = response.StatusCode, response.Header, body
}

func (e *exchange) replayed(s *suite) bool {
	return s.p.ReplayHeader != "" && e.status != 0 && e.header.Get(s.p.ReplayHeader) == "true"
}

// success reports whether the operation was executed. A replay may have another status of
// success, which only IR-24 forbids.
func (e *exchange) success(s *suite) bool {
	return e.status == s.p.Operation.Status ||
		e.status >= 200 && e.status <= 299 && e.status != http.StatusAccepted && e.id(s) != ""
}

// rejected reports whether the client is at fault.
func (e *exchange) rejected() bool { return e.status >= 400 && e.status <= 499 }

// temporary reports whether the same request may get another response later.
func (e *exchange) temporary() bool {
	switch e.status {
	case e.busy, http.StatusTooManyRequests, http.StatusAccepted, http.StatusTooEarly, http.StatusRequestTimeout:
		return true
	default:
		return e.status == 0 || e.status >= 500
	}
}

// id returns the id of what the operation created.
func (e *exchange) id(s *suite) string {
	if e.status == 0 {
		return ""
	}
	if name := s.p.Operation.ID.Header; name != "" {
		return e.header.Get(name)
	}
	value, _ := decode(e.body)
	id, ok := at(value, s.p.Operation.ID.Pointer)
	if !ok {
		return ""
	}
	return fmt.Sprint(id)
}

// same reports whether both responses are those of one execution: successes with one id, or
// one failure. IR-24 and IR-25 compare the rest.
func (e *exchange) same(s *suite, first *exchange) bool {
	return (e.status == first.status || e.success(s) && first.success(s)) && e.id(s) == first.id(s)
}

// member returns a text of the problem document, or "".
func (e *exchange) member(name string) string {
	value, _ := decode(e.body)
	found, _ := at(value, "/"+name)
	text, _ := found.(string)
	return text
}

func (e *exchange) took() time.Duration { return e.ended.Sub(e.sent) }

func (e *exchange) verdict() string { return e.member("retry") }

// retryAfter returns the value of Retry-After in seconds.
func (e *exchange) retryAfter() (time.Duration, bool) {
	if e.status == 0 {
		return 0, false
	}
	seconds, err := strconv.ParseUint(e.header.Get("Retry-After"), 10, 31)
	return time.Duration(seconds) * time.Second, err == nil
}

const shownLength = 300

func shorten(text string) string {
	quoted := strconv.Quote(text)
	text = strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	if len(text) > shownLength {
		text = text[:shownLength] + "…"
	}
	return text
}

// shownHeaders are those that the clauses are about.
func (e *exchange) shownHeaders() []string {
	names := []string{"Cache-Control", "Content-Type", "Location", "Preference-Applied", "Retry-After"}
	for name := range maps.Keys(e.header) {
		if strings.Contains(name, "Idempot") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var lines []string
	for _, name := range names {
		for _, value := range e.header.Values(name) {
			lines = append(lines, name+": "+shorten(value))
		}
	}
	return lines
}

// lines describe the exchange without credentials.
func (e *exchange) lines() []string {
	lines := []string{"> " + e.method + " " + e.path}
	for _, key := range e.keys {
		lines = append(lines, "> "+e.keyHeader+": "+shorten(key))
	}
	if e.sentBody != "" {
		lines = append(lines, "> "+shorten(e.sentBody))
	}
	if e.err != nil {
		return append(lines, "< no response: "+e.err.Error())
	}
	lines = append(lines, fmt.Sprintf("< %d", e.status))
	for _, line := range e.shownHeaders() {
		lines = append(lines, "< "+line)
	}
	if len(e.body) > 0 {
		lines = append(lines, "< "+shorten(string(bytes.TrimSpace(e.body))))
	}
	return lines
}

// outcome names a response in a message.
func (e *exchange) outcome() string {
	if e.err != nil {
		return "no response"
	}
	return strconv.Itoa(e.status)
}
