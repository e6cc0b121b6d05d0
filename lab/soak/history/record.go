package history

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Operation is one line of a history.
type Operation struct {
	Kind     Kind          `json:"kind"`
	Account  int           `json:"account"`
	Key      string        `json:"key,omitempty"`     // "" for a failover, which concerns all keys
	Request  string        `json:"request,omitempty"` // fingerprint of path and body
	Call     time.Duration `json:"call"`              // since the start of the history
	Return   time.Duration `json:"return,omitempty"`  // 0: no response
	Status   int           `json:"status,omitempty"`  // 0: no response
	State    string        `json:"state,omitempty"`   // of a read
	Response Response      `json:"response,omitzero"` // of a request, or the stored one of a read
	Refund   bool          `json:"refund,omitempty"`  // the request is for a refund
}

// Kind is what an [Operation] does.
type Kind string

// The kinds of lines.
const (
	Post     Kind = "post"
	Read     Kind = "read"     // of the key's status
	Age      Kind = "age"      // the soak has made a finished key old, so the reaper deletes it
	Failover Kind = "failover" // rows that were committed after Call may be lost by Return
	Expire   Kind = "expire"   // an operator expires a key whose row is lost
)

// Response identifies a response. Type is that of a problem. Body is a fingerprint of
// status and body; a read has none.
type Response struct {
	Status   int    `json:"status"`
	Type     string `json:"type,omitempty"`
	Location string `json:"location,omitempty"`
	Body     string `json:"body,omitempty"`
}

// Recorder writes a history. It is safe for concurrent use.
type Recorder struct {
	start time.Time

	mu   sync.Mutex
	file *os.File
	out  *bufio.Writer
	err  error // the first one
}

// Create creates the file of a history, which starts now.
func Create(path string) (*Recorder, error) {
	file, err := os.Create(path) //nolint:gosec // chosen by the user
	if err != nil {
		return nil, err
	}
	return &Recorder{start: time.Now(), file: file, out: bufio.NewWriter(file)}, nil
}

// At returns a time as a duration since the start.
func (r *Recorder) At(t time.Time) time.Duration { return t.Sub(r.start) }

// Add appends an operation. Close returns its error.
func (r *Recorder) Add(op Operation) {
	line, err := json.Marshal(op)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		_, err = r.out.Write(append(line, '\n'))
	}
	r.err = cmp.Or(r.err, err)
}

// Judge judges what was added so far.
func (r *Recorder) Judge() (Verdict, error) {
	if err := r.flush(); err != nil {
		return Verdict{}, err
	}
	return Judge(r.file.Name())
}

func (r *Recorder) flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.err, r.out.Flush())
}

// Close closes the file.
func (r *Recorder) Close() error { return errors.Join(r.flush(), r.file.Close()) }

// Transport records the requests of an account that base sends.
func (r *Recorder) Transport(account int, base http.RoundTripper) http.RoundTripper {
	return &transport{r, account, base}
}

type transport struct {
	*Recorder
	account int
	base    http.RoundTripper
}

// RoundTrip also reads the response's body, because a response that breaks off is none.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	op := Operation{Kind: Post, Account: t.account, Key: request.Header.Get("Idempotency-Key")}
	if op.Key != "" {
		sent, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		op.Request, op.Refund = fingerprint(request.URL.Path, sent), strings.HasSuffix(request.URL.Path, "/refunds")
		request = request.Clone(request.Context())
		request.Body, request.GetBody = io.NopCloser(bytes.NewReader(sent)), nil // so net/http cannot send it twice
	} else if key, ofKey := strings.CutPrefix(request.URL.Path, "/v1/idempotency-keys/"); ofKey {
		op.Kind, op.Key = Read, key
	}

	op.Call = t.At(time.Now())
	response, err := t.base.RoundTrip(request)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(response.Body)
		err = errors.Join(err, response.Body.Close())
		response.Body = io.NopCloser(bytes.NewReader(body))
	}
	if err != nil {
		response = nil
	} else {
		op.Return = t.At(time.Now())
		op.receive(response, body)
	}
	// A refused connection has no effect. With dozens of such requests as possible effects, while
	// all processes of the API are down, the search of a key does not end.
	if op.Key != "" && !errors.Is(err, syscall.ECONNREFUSED) {
		t.Add(op)
	}
	return response, err
}

func (op *Operation) receive(response *http.Response, body []byte) {
	op.Status = response.StatusCode
	if op.Kind == Post {
		var problem struct{ Type string }
		_ = json.Unmarshal(body, &problem) // an order has no type
		op.Response = Response{op.Status, problem.Type, response.Header.Get("Location"), fingerprint(strconv.Itoa(op.Status), body)}
		return
	}
	var status struct {
		State    string
		Response Response
	}
	_ = json.Unmarshal(body, &status) // a problem has no state
	op.State, op.Response = status.State, status.Response
}

func fingerprint(first string, body []byte) string {
	sum := sha256.Sum256(append([]byte(first+"\n"), body...))
	return hex.EncodeToString(sum[:16])
}
