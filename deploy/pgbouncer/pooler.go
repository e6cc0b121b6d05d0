package pgbouncer

import (
	"bufio"
	"context"
	"crypto/rand"
	_ "embed" // for the two files
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed pgbouncer.ini
var configuration string

//go:embed role.sql
var role string

// The role that role.sql is about, and its password at the pooler.
const (
	roleName = "orders"
	password = "a-password-for-tests"
)

// startPatience bounds the wait for a pooler, which needs some 20 ms.
const startPatience = 30 * time.Second

// attempts bounds how often a pooler is started whose port somebody else has
// taken since it was chosen, or since an earlier pooler had it.
const attempts = 5

// Options say which pooler to start.
type Options struct {
	// Program is the path of pgbouncer.
	Program string

	// Server is the connection string of a PostgreSQL server that lets its
	// superuser in without a password.
	Server string

	// Port is where the pooler listens, at 127.0.0.1. With 0 it is a free one.
	Port int

	// Settings are lines that follow those of pgbouncer.ini and replace them.
	Settings string
}

// Pooler is a running PgBouncer.
type Pooler struct {
	// Version is what the pooler says of itself, such as 1.18.0.
	Version string

	port   int
	leash  *os.File // the pooler lives as long as this end of a pipe is open
	exited chan struct{}
}

// Start makes the role of role.sql, as a superuser, and starts a pooler before
// the server. Every database of the server is behind it.
func Start(ctx context.Context, options Options) (*Pooler, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	server, err := pgx.ParseConfig(options.Server)
	if err != nil {
		return nil, fmt.Errorf("pgbouncer: %w", err)
	}
	if err := makeRole(ctx, server); err != nil {
		return nil, fmt.Errorf("pgbouncer: role: %w", err)
	}
	for attempt := 1; ; attempt++ {
		p := &Pooler{port: options.Port, exited: make(chan struct{})}
		err := p.start(ctx, options, server)
		if err == nil {
			return p, nil
		}
		if attempt == attempts || !strings.Contains(err.Error(), "cannot listen") {
			return nil, fmt.Errorf("pgbouncer: %w", err)
		}
	}
}

func (p *Pooler) start(ctx context.Context, options Options, server *pgx.ConnConfig) error {
	var err error
	if p.port == 0 {
		if p.port, err = freePort(); err != nil {
			return err
		}
	}
	folder, err := os.MkdirTemp("", "orders-pgbouncer-")
	if err != nil {
		return err
	}
	if err := p.configure(folder, server, options.Settings); err != nil {
		return errors.Join(err, os.RemoveAll(folder))
	}
	return p.launch(ctx, options.Program, folder)
}

// makeRole makes the role, if it is not there, with the settings it has to have.
func makeRole(ctx context.Context, server *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, server)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE ROLE "+roleName+" LOGIN SUPERUSER")
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42710" { // it exists
		err = nil
	}
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, role, pgx.QueryExecModeSimpleProtocol)
	return err
}

// freePort returns a port that nobody uses at this moment. It is below those that
// a system hands out by itself, and one of many, so that it is still free when a
// pooler that was killed is started there again.
func freePort() (int, error) {
	for attempt := 1; ; attempt++ {
		offset, err := rand.Int(rand.Reader, big.NewInt(20_000))
		if err != nil {
			return 0, err
		}
		port := 10_000 + int(offset.Int64())
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, listener.Close()
		}
		if attempt == attempts {
			return 0, err
		}
	}
}

// configure writes the pooler's files: pgbouncer.ini as it is, followed by lines
// that replace its addresses. Its last section goes on: to begin that anew would
// set everything in it back.
func (p *Pooler) configure(folder string, server *pgx.ConnConfig, settings string) error {
	users := filepath.Join(folder, "userlist.txt")
	lines := []string{
		configuration,
		"listen_port = " + strconv.Itoa(p.port),
		"auth_file = " + users,
		"unix_socket_dir =",
	}
	if os.Geteuid() == 0 {
		lines = append(lines, "user = nobody") // it does not work as root
	}
	lines = append(lines,
		settings,
		"[databases]",
		fmt.Sprintf("* = host=%s port=%d", server.Host, server.Port),
		"",
	)
	return errors.Join(
		os.WriteFile(users, fmt.Appendf(nil, "%q %q\n", roleName, password), 0o600),
		os.WriteFile(filepath.Join(folder, "pgbouncer.ini"), []byte(strings.Join(lines, "\n")), 0o600),
	)
}

// watcher is the shell program that a pooler runs under. Its arguments are a
// folder to remove in the end and the pooler's command line. Standard input is a
// pipe whose other end only our process holds: when that ends, for whatever
// reason, the read does too, and the pooler is killed. It keeps nothing that
// would be lost.
const watcher = `
folder=$1; shift
exec 9<&0
"$@" </dev/null 9<&- & pooler=$!
exec >/dev/null 2>&1 # to print to a process that is gone would kill the shell
{ read -r line <&9; kill -KILL $pooler; } & watch=$!
wait $pooler; status=$?
kill $watch
rm -rf "$folder"
exit $status`

// launch starts the pooler and waits until it says that it is up.
func (p *Pooler) launch(ctx context.Context, program, folder string) error {
	input, leash, err := os.Pipe()
	if err != nil {
		return err
	}
	defer input.Close()
	p.leash = leash
	output, printed := io.Pipe()
	//nolint:noctx // the pooler outlives the context of its start
	cmd := exec.Command("/bin/sh", "-c", watcher, "sh", folder, program, filepath.Join(folder, "pgbouncer.ini"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, printed, printed
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		return errors.Join(err, leash.Close(), os.RemoveAll(folder))
	}
	go func() {
		defer close(p.exited)
		printed.CloseWithError(errors.Join(errors.New("it ended"), cmd.Wait()))
	}()
	up := make(chan string, 1)
	failed := make(chan error, 1)
	go func() { failed <- follow(output, up) }()
	select {
	case p.Version = <-up:
		return nil
	case err = <-failed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return errors.Join(err, p.Stop())
}

var upLine = regexp.MustCompile(`process up: PgBouncer ([0-9.]+)`)

// follow reads what the pooler prints until it ends, and hands on its version
// when it is up. Before that, all that it prints is of interest; later it is
// thrown away.
func follow(output *io.PipeReader, up chan<- string) error {
	defer output.Close() // or who prints would wait for a reader
	var said strings.Builder
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if match := upLine.FindStringSubmatch(lines.Text()); match != nil {
			up <- match[1]
			_, err := io.Copy(io.Discard, output)
			return err
		}
		said.WriteString("\n" + lines.Text())
	}
	return fmt.Errorf("%w%s", lines.Err(), &said)
}

// URL returns the connection string for one of the server's databases, as
// docs/growing.md says it must be: with statements that leave nothing behind in
// a session.
func (p *Pooler) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(roleName, password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable&default_query_exec_mode=cache_describe",
	}
	return u.String()
}

// Port returns where the pooler listens.
func (p *Pooler) Port() int { return p.port }

// Stop kills the pooler, without a word to its clients, and waits for its end.
func (p *Pooler) Stop() error {
	err := p.leash.Close()
	<-p.exited
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
