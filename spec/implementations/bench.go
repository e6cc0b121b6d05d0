package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// workshop is a copy of this folder in which the selected implementations are installed.
type workshop struct {
	folder      string
	conformance string
}

// prepare copies and installs. Nothing is installed into the repository's own folder.
func prepare(ctx context.Context, root string, selected []subject) (_ *workshop, err error) {
	folder, err := os.MkdirTemp("", "implementations-")
	if err != nil {
		return nil, err
	}
	w := &workshop{folder: folder, conformance: filepath.Join(folder, "conformance")}
	defer func() {
		if err != nil {
			w.remove()
		}
	}()
	if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // PostgreSQL runs as another user
		return nil, err
	}
	if err := os.CopyFS(filepath.Join(folder, "implementations"), os.DirFS(root)); err != nil {
		return nil, err
	}
	build := exec.CommandContext(ctx, "go", "-C", filepath.Dir(root), "build", "-o", w.conformance, "./conformance") //nolint:gosec // its own folder
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", build, err, output)
	}
	installed := map[string]bool{}
	for _, s := range selected {
		for _, command := range s.installation() {
			// The entries of a language share its packages.
			if installed[s.Language+command] {
				continue
			}
			installed[s.Language+command] = true
			fmt.Fprintf(os.Stderr, "%s: %s\n", s.id, command)
			cmd := exec.CommandContext(ctx, "sh", "-e", "-c", command) //nolint:gosec // an entry's commands are run on purpose
			cmd.Dir = w.of(s)
			cmd.Env = append(os.Environ(), "GOWORK=off")
			if output, err := cmd.CombinedOutput(); err != nil {
				return nil, fmt.Errorf("%s: %s: %w\n%s", s.id, command, err, output)
			}
		}
	}
	return w, nil
}

// installation returns the commands: first one that puts the entry's commit into source/.
func (i *implementation) installation() []string {
	if i.Commit == "" {
		return i.Install
	}
	const get = "git init -q source/%[3]s; cd source/%[3]s; git fetch -q --depth 1 %[1]s %[2]s; git checkout -q FETCH_HEAD"
	return append([]string{fmt.Sprintf(get, i.Source, i.Commit, path.Base(i.Source))}, i.Install...)
}

// of returns the folder of the entry's language.
func (w *workshop) of(s subject) string {
	return filepath.Join(w.folder, "implementations", "servers", strings.ToLower(s.Language))
}

func (w *workshop) remove() { _ = os.RemoveAll(w.folder) }

// bench is one implementation with its own store and provider.
type bench struct {
	subject
	provider provider
	server   *process
	service  *process // the store, or nil
	log      *os.File
	closers  []func() error

	url, secondURL, control, keyHeader string
}

// bench starts a fresh store, the provider and the server, as one process or two.
func (w *workshop) bench(ctx context.Context, s subject, lifetime string, second bool) (b *bench, err error) {
	b = &bench{subject: s, keyHeader: "Idempotency-Key"}
	if name, ok := s.Profile["key_header"].(string); ok {
		b.keyHeader = name
	}
	defer func() {
		if err != nil {
			err = errors.Join(b.explain(err), b.close())
		}
	}()
	folder, err := os.MkdirTemp(w.folder, "run-")
	if err != nil {
		return b, err
	}
	if b.log, err = os.Create(filepath.Join(folder, "log")); err != nil { //nolint:gosec // its own folder
		return b, err
	}
	b.closers = append(b.closers, b.log.Close)
	if err := b.serveControl(); err != nil {
		return b, err
	}
	environment := []string{"PROVIDER=" + b.control, "STORE=" + s.store.Name, "LIFETIME=" + lifetime}
	address := ""
	switch s.store.Needs {
	case "redis":
		b.service, address, err = startRedis(ctx, folder, b.log)
		environment = append(environment, "REDIS_URL="+address)
	case "postgres":
		b.service, address, err = startPostgres(ctx, folder, b.log)
		environment = append(environment, "DATABASE_URL="+address)
	}
	if b.service != nil {
		b.closers = append(b.closers, func() error { return b.service.kill(ctx) })
	}
	if err != nil {
		return b, err
	}
	if b.server, b.url, err = w.startServer(ctx, b, environment); err != nil || !second {
		return b, err
	}
	_, b.secondURL, err = w.startServer(ctx, b, environment)
	return b, err
}

func (w *workshop) startServer(ctx context.Context, b *bench, environment []string) (*process, string, error) {
	listen, err := freeAddress()
	if err != nil {
		return nil, "", err
	}
	server := &process{log: b.log, ready: connects(listen), command: func() *exec.Cmd {
		cmd := exec.Command("sh", "-c", "exec "+b.Start) //nolint:gosec,noctx // kill ends it
		cmd.Dir, cmd.Env = w.of(b.subject), append(append(os.Environ(), environment...), "ADDR="+listen)
		return cmd
	}}
	b.closers = append(b.closers, func() error { return server.kill(ctx) })
	return server, "http://" + listen, server.start(ctx)
}

// explain adds what the server and its store have printed.
func (b *bench) explain(err error) error {
	if err == nil || b.log == nil {
		return err
	}
	text, _ := os.ReadFile(b.log.Name())
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("%w\n%s", err, strings.Join(lines[max(0, len(lines)-20):], "\n"))
}

func (b *bench) close() error {
	var faults []error
	for _, closer := range slices.Backward(b.closers) {
		faults = append(faults, closer())
	}
	return errors.Join(faults...)
}

// serveControl serves the provider, and the commands of the profile file: a POST to /kill,
// for example, returns when the server is killed.
func (b *bench) serveControl() error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", b.provider.create)
	mux.HandleFunc("GET /charges", b.provider.list)
	commands := map[string]func(context.Context) error{
		"kill":      b.killServer,
		"start":     func(ctx context.Context) error { return b.explain(b.server.start(ctx)) },
		"interrupt": func(context.Context) error { b.provider.interrupt(true); return nil },
		"restore":   func(context.Context) error { b.provider.interrupt(false); return nil },
		"pause":     func(context.Context) error { return b.server.signal(syscall.SIGSTOP) },
		"resume":    func(context.Context) error { return b.server.signal(syscall.SIGCONT) },
		"lose":      b.loseStore,
	}
	for name, command := range commands {
		mux.HandleFunc("POST /"+name, func(w http.ResponseWriter, r *http.Request) {
			// A command that is interrupted leaves the server in an unknown state.
			if err := command(context.WithoutCancel(r.Context())); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	b.control = "http://" + address
	b.closers = append(b.closers, server.Close)
	return nil
}

func (b *bench) killServer(ctx context.Context) error { return b.server.kill(ctx) }

// loseStore kills the store's service and starts it again.
func (b *bench) loseStore(ctx context.Context) error {
	if b.service == nil {
		return errors.New("this store is no service")
	}
	if err := b.service.kill(ctx); err != nil {
		return err
	}
	return b.service.start(ctx)
}

// scriptEnvironment has the variables of reproduce.sh.
func (b *bench) scriptEnvironment() []string {
	return []string{"URL=" + b.url, "SECOND_URL=" + b.secondURL, "CONTROL=" + b.control, "KEY_HEADER=" + b.keyHeader}
}

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
