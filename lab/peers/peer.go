package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/client"
	"example.com/orders-api/internal/subprocess"
	"example.com/orders-api/lab/measure"
)

// peer is a program that serves POST /v1/orders. It gets LISTEN, DATABASE_URL,
// STRIPE_API_BASE and STRIPE_SECRET_KEY, and returns 200 at /healthz once it is ready.
type peer struct {
	name    string
	title   string   // in the tables
	folder  string   // of its program, below lab/peers/programs
	server  string   // folder of a server that the peer needs, which also gets these variables
	environ []string // more variables
}

const ours = "orders"

func all() []peer {
	return []peer{
		{name: ours, title: "this program"},
		{name: "dbos18tx", title: "DBOS 1.8.0, transactions", folder: "dbos"},
		{name: "dbos18steps", title: "DBOS 1.8.0, steps", folder: "dbos", environ: []string{"PEER_STEPS=1"}},
		{name: "river", title: "River", folder: "river"},
		{name: "temporal", title: "Temporal", folder: "temporal", server: "temporalserver"},
		{name: "restate", title: "Restate", folder: "restate", server: "restateserver"},
		{name: "cache", title: "response cache", folder: "cache"},
	}
}

// The programs run in the root of the repository.
const (
	programs = "bin"
	sources  = "lab/peers/programs"
)

func (p peer) build(ctx context.Context) error {
	for _, folder := range []string{p.folder, p.server} {
		if folder == "" {
			continue
		}
		target, err := filepath.Abs(program(folder))
		if err != nil {
			return err
		}
		command := exec.CommandContext(ctx, "go", "build", "-C", sources, "-o", target, "./"+folder) //nolint:gosec // our own folders
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", folder, err, out)
		}
	}
	return nil
}

// program is this repository's for the folder "".
func program(folder string) string {
	if folder == "" {
		return filepath.Join(programs, ours)
	}
	return filepath.Join(programs, "peer-"+folder)
}

var productLine = regexp.MustCompile(`(?m)^product: (\d+) lines$`)

// lines returns the lines of Go and SQL, without comments and blank lines, and for a peer with
// those that all peers share.
func (p peer) lines(ctx context.Context) (int, error) {
	folders := []string{".."}
	if p.folder != "" {
		folders = []string{"peers/programs/" + p.folder, "peers/programs/shop"}
	}
	sum := 0
	for _, folder := range folders {
		out, err := exec.CommandContext(ctx, "go", "-C", "lab", "run", "./count", folder).Output() //nolint:gosec // our own program
		match := productLine.FindSubmatch(out)
		if err != nil || match == nil {
			return 0, errors.Join(fmt.Errorf("count the lines of %s: %s", folder, out), err)
		}
		lines, err := strconv.Atoi(string(match[1]))
		if err != nil {
			return 0, err
		}
		sum += lines
	}
	return sum, nil
}

// instance is a peer with a database of its own. It runs during a turn only.
type instance struct {
	peer
	lab      *lab
	database string // URL
	pool     *pgxpool.Pool
	apiKey   string
	api      *subprocess.Process
	server   *subprocess.Process // nil if the peer needs none
	ready    string              // URL
	client   *client.Client
	load     *measure.Client // of the same server
	created  int             // 201 responses
}

func (l *lab) open(ctx context.Context, p peer, database string) (*instance, error) {
	i := &instance{peer: p, lab: l, apiKey: "none"}
	var err error
	if i.database, err = l.Create(ctx, database); err != nil {
		return nil, err
	}
	if i.pool, err = pgxpool.New(ctx, i.database); err != nil {
		return nil, err
	}
	if p.name == ours {
		if _, err := i.command(ctx, "migrate", "up"); err != nil {
			return nil, err
		}
		text, err := i.command(ctx, "accounts", "create", "--name", "shop")
		if err != nil {
			return nil, err
		}
		words := strings.Fields(text)
		i.apiKey = words[len(words)-1]
	}
	return i, nil
}

func (i *instance) close() { i.pool.Close() }

func (i *instance) command(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, filepath.Join(programs, ours), args...) //nolint:gosec // our own program
	command.Env = []string{"DATABASE_URL=" + i.database}
	out, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("orders %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// start starts the peer, and its server before it.
func (i *instance) start(ctx context.Context, database, stripe string, environ ...string) error {
	environ = append(environ, i.environ...)
	environ = append(environ, "DATABASE_URL="+database, "STRIPE_API_BASE="+stripe, "STRIPE_SECRET_KEY=sk_test_fake",
		"GOGC=200",                                           // the same for all
		"HOME="+os.Getenv("HOME"), "PATH="+os.Getenv("PATH")) // a server may come from a package
	if i.peer.server != "" {
		address, err := subprocess.FreeAddress(ctx)
		if err != nil {
			return err
		}
		i.server = i.process(i.peer.server, append(environ, "LISTEN="+address))
		if err := i.server.Start(); err != nil {
			return err
		}
		environ = append(environ, "PEER_SERVER="+address)
	}
	address, err := subprocess.FreeAddress(ctx)
	if err != nil {
		return err
	}
	i.client, err = client.New(client.Config{
		BaseURL:   "http://" + address,
		APIKey:    i.apiKey,
		Transport: &http.Transport{MaxIdleConnsPerHost: 2000},
	})
	if err != nil {
		return err
	}
	i.load = measure.NewClient(address, i.apiKey)
	i.ready = "http://" + address + "/healthz"
	i.api = i.process(i.folder, append(environ, "LISTEN="+address))
	if i.name == ours {
		i.ready = "http://" + address + "/readyz"
		i.api.Args = []string{"serve", "--shutdown-delay", "0s"}
		i.api.Environ = append(environ, "LISTEN_ADDR="+address, "ADMIN_ADDR=", "LOG_FORMAT=json")
	}
	return i.serve(ctx)
}

func (i *instance) process(folder string, environ []string) *subprocess.Process {
	return &subprocess.Process{
		Name:       i.name,
		Executable: program(folder),
		Environ:    environ,
		Log:        filepath.Join(i.lab.Folder, filepath.Base(program(folder))+".log"),
	}
}

// serve starts the API, for the first time or after a kill, and waits until it is ready.
func (i *instance) serve(ctx context.Context) error {
	if err := i.api.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for ctx.Err() == nil {
		if i.api.Exited() { // its port may be that of an outgoing connection for a moment
			pause(ctx, 100*time.Millisecond)
			if err := i.api.Start(); err != nil {
				return err
			}
		}
		if isReady(ctx, i.ready) {
			return nil
		}
		pause(ctx, 10*time.Millisecond)
	}
	text, err := os.ReadFile(i.api.Log)
	return errors.Join(fmt.Errorf("%s is not ready: %s", i.name, text[max(0, len(text)-2000):]), err)
}

const readyTimeout = time.Minute // a peer's server may create its tables first

func isReady(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// pause returns earlier if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// stop stops the API, and kills its server, because nothing is unfinished.
func (i *instance) stop() error {
	i.client.Close()
	i.load.Close()
	err := i.api.Stop()
	if i.server != nil {
		err = errors.Join(err, i.server.Kill())
	}
	return err
}
