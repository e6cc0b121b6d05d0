package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// roleVariable makes the test binary one of the processes of a shop, because only a process
// of its own can be killed or stopped as a server is, or the command itself.
const roleVariable = "CONFORMANCE_TEST_ROLE"

// processConfig is the configuration of a process, as JSON in configVariable.
type processConfig struct {
	Folder   string // the process ends when it is removed
	Address  string
	Store    string // its URL
	Provider string // its URL
	Flaws    flaws
}

const configVariable = "CONFORMANCE_TEST_CONFIG"

// runRole serves until the process is killed.
func runRole(role string) error {
	var c processConfig
	if err := json.Unmarshal([]byte(os.Getenv(configVariable)), &c); err != nil {
		return err
	}
	var handler http.Handler
	switch role {
	case "shop":
		handler = newShop(c)
	case "store":
		store, err := openStore(filepath.Join(c.Folder, "journal"), c.Flaws.Volatile)
		if err != nil {
			return err
		}
		handler = store
	default:
		return fmt.Errorf("unknown role %q", role)
	}
	listener, err := listenAgain(c.Address)
	if err != nil {
		return err
	}
	go func() {
		// The test binary ends without its cleanup at a timeout.
		for {
			if _, err := os.Stat(c.Folder); errors.Is(err, os.ErrNotExist) {
				os.Exit(0)
			}
			<-time.After(time.Second)
		}
	}()
	server := http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	return server.Serve(listener)
}

// listenAgain waits until a killed process has left the address.
func listenAgain(address string) (net.Listener, error) {
	for try := 0; ; try++ {
		listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
		if err == nil || try == 200 {
			return listener, err
		}
		<-time.After(20 * time.Millisecond)
	}
}

// taken are the addresses of this run, because servers of two tests may start at the same time.
var taken sync.Map

// freeAddress returns an address whose port is below those that the kernel chooses, so that
// no other process takes it while its server is killed.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20_000+rand.N(12_000))
		if _, again := taken.LoadOrStore(address, true); again {
			continue
		}
		if listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address); err == nil {
			require.NoError(t, listener.Close())
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}

// process is a process that shell commands start, kill, pause and resume.
type process struct {
	folder, name string
	environment  []string
	start        string // the command
}

func newProcess(t *testing.T, folder, name, role string, c processConfig) process {
	t.Helper()
	text, err := json.Marshal(c)
	require.NoError(t, err)
	binary, err := os.Executable()
	require.NoError(t, err)
	p := process{folder: folder, name: name}
	script := filepath.Join(folder, name+".sh")
	require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\n%s=%s %s=%s '%s' >>'%s' 2>&1 &\necho $! >'%s'\n",
		roleVariable, role, configVariable, "'"+string(text)+"'", binary, filepath.Join(folder, name+".log"), p.pid()), 0o700))
	p.start = "sh '" + script + "'" // a child of another test may still have the new file open, so it cannot be executed
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(folder, name+".log"))
			t.Logf("%s: %s", name, log)
		}
		_ = exec.Command("sh", "-c", p.signal("KILL")).Run()
	})
	p.run(t)
	return p
}

func (p process) pid() string { return filepath.Join(p.folder, p.name+".pid") }

// signal returns the command that sends a signal.
func (p process) signal(name string) string {
	return fmt.Sprintf("kill -%s \"$(cat '%s')\"", name, p.pid())
}

// run starts the process and waits until it serves.
func (p process) run(t *testing.T) {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "sh", "-c", p.start).CombinedOutput()
	require.NoError(t, err, string(output))
}

// reachable waits until something serves at the address.
func reachable(t *testing.T, address string) {
	t.Helper()
	require.Eventually(t, func() bool {
		connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		return err == nil && connection.Close() == nil
	}, time.Minute, 10*time.Millisecond)
}

// provider charges cards. It is a dependency of the shops that is never killed, so it is
// served by the test itself.
type provider struct {
	interrupted string        // while this file exists, a response is lost after the charge
	late        time.Duration // then the charge comes later than the response

	mu      sync.Mutex
	charges []charge
}

type charge struct {
	ID    string `json:"id"`
	Order string `json:"order"`
	key   string
}

// One call of the provider takes quickCall, or slowCall with the card "slow".
const (
	quickCall = 5 * time.Millisecond
	slowCall  = 200 * time.Millisecond
)

func (p *provider) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.charges)
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var sent struct{ Card, Order string }
	_ = json.NewDecoder(r.Body).Decode(&sent)
	lasts := quickCall
	if sent.Card == "slow" {
		lasts = slowCall
	}
	switch {
	case r.Method == http.MethodGet:
		p.mu.Lock()
		defer p.mu.Unlock()
		_ = json.NewEncoder(w).Encode(map[string]any{"data": p.charges})
	case r.URL.Path == "/authorisations":
		<-time.After(lasts)
		w.WriteHeader(http.StatusCreated)
	case sent.Card == "declined":
		w.WriteHeader(http.StatusPaymentRequired)
	default:
		<-time.After(lasts / 2)
		key := r.Header.Get("Idempotency-Key")
		if _, err := os.Stat(p.interrupted); err == nil && p.late > 0 {
			time.AfterFunc(p.late, func() { p.charge(sent.Order, key) })
			w.WriteHeader(http.StatusGatewayTimeout)
			return
		}
		made := p.charge(sent.Order, key)
		<-time.After(lasts / 2)
		if _, err := os.Stat(p.interrupted); err == nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(made)
	}
}

// charge charges once for a key.
func (p *provider) charge(order, key string) charge {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.charges {
		if c.key == key {
			return c
		}
	}
	c := charge{"ch_" + newKey()[:12], order, key}
	p.charges = append(p.charges, c)
	return c
}

// entry is a record of the store. An entry without a value is deleted.
type storeEntry struct {
	Name     string          `json:"name"`
	Value    json.RawMessage `json:"value,omitempty"`
	Version  int             `json:"version"` // required of the present record: 0 if there is none, anyVersion
	Lifetime time.Duration   `json:"lifetime,omitempty"`
	Until    time.Time       `json:"until,omitzero"`
}

const anyVersion = -1

// store keeps records in a journal, so they survive a kill. It compares versions and writes
// several records at once, as a transaction does.
type store struct {
	journal *os.File // nil: in memory only

	mu      sync.Mutex
	version int
	records map[string]storeEntry
}

func openStore(path string, volatile bool) (*store, error) {
	s := &store{records: make(map[string]storeEntry)}
	if volatile {
		return s, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	s.journal = file
	decoder := json.NewDecoder(file)
	end := int64(0)
	for {
		var batch []storeEntry
		err := decoder.Decode(&batch)
		switch {
		case errors.Is(err, io.EOF):
			return s, nil
		case errors.Is(err, io.ErrUnexpectedEOF): // the write that the kill interrupted
			return s, file.Truncate(end)
		case err != nil:
			return nil, err
		}
		end = decoder.InputOffset()
		s.apply(batch)
	}
}

func (s *store) apply(batch []storeEntry) {
	for _, e := range batch {
		s.version++
		e.Version = s.version
		s.records[e.Name] = e
		if e.Value == nil {
			delete(s.records, e.Name)
		}
	}
}

// live returns a record whose lifetime has not ended.
func (s *store) live(name string) (storeEntry, bool) {
	e, ok := s.records[name]
	if ok && !e.Until.IsZero() && time.Now().After(e.Until) {
		return storeEntry{}, false
	}
	return e, ok
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, prefix := r.URL.Query().Get("name"), r.URL.Query().Get("prefix")
	switch {
	case r.Method == http.MethodPost:
		var batch []storeEntry
		if json.NewDecoder(r.Body).Decode(&batch) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for i, e := range batch {
			present, _ := s.live(e.Name)
			if e.Version != anyVersion && e.Version != present.Version {
				w.WriteHeader(http.StatusConflict)
				return
			}
			if e.Lifetime > 0 {
				batch[i].Until = time.Now().Add(e.Lifetime)
			}
		}
		if s.journal != nil && json.NewEncoder(s.journal).Encode(batch) != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		s.apply(batch)
		_ = json.NewEncoder(w).Encode(s.version)
	case prefix != "":
		found := []json.RawMessage{}
		for name, e := range s.records {
			if strings.HasPrefix(name, prefix) {
				found = append(found, e.Value)
			}
		}
		_ = json.NewEncoder(w).Encode(found)
	default:
		e, ok := s.live(name)
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		_ = json.NewEncoder(w).Encode(e)
	}
}

// storeClient calls the store.
type storeClient struct {
	url  string
	http http.Client
}

var errVersion = errors.New("the record has another version")

func (c *storeClient) call(ctx context.Context, method, query, body string, result any) (int, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.url+"?"+query, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusBadRequest && response.StatusCode != http.StatusNotFound {
		return response.StatusCode, fmt.Errorf("the store responds %d", response.StatusCode)
	}
	return response.StatusCode, json.NewDecoder(response.Body).Decode(result)
}

// put writes all entries or none. It returns the version of the last one.
func (c *storeClient) put(ctx context.Context, entries ...storeEntry) (int, error) {
	body, err := json.Marshal(entries)
	if err != nil {
		return 0, err
	}
	var version int
	status, err := c.call(ctx, http.MethodPost, "", string(body), &version)
	if status == http.StatusConflict {
		return 0, errVersion
	}
	return version, err
}
