//go:build pgbouncer

// Package pgbouncer_test runs the program, and the tests of its module, through
// PgBouncer in transaction mode with the files of deploy/pgbouncer. docs/scaling.md
// explains the files. make pgbouncer-check finds the program and runs the tests.
package pgbouncer_test

import (
	"bufio"
	"context"
	"crypto/rand"
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
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// program is the variable that names the PgBouncer program.
const program = "PGBOUNCER"

// files is the folder of the two files that the tests use.
const files = "../../deploy/pgbouncer"

// roleName is the role of role.sql.
const roleName = "orders"

// startTimeout bounds the start of a pooler, which takes about 20 ms.
const startTimeout = 30 * time.Second

// maxAttempts bounds the starts of a pooler. A start fails if another program has taken
// the port since it was chosen.
const maxAttempts = 5

// options configure a pooler.
type options struct {
	server   string // the URL of a superuser, whose password the role gets
	port     int    // at 127.0.0.1; 0: a free one
	settings string // lines after those of pgbouncer.ini, which they override
}

// pooler is a running PgBouncer.
type pooler struct {
	version  string // such as 1.18.0
	password string // of the role
	port     int
	pipe     *os.File // the pooler is killed when this end of a pipe is closed
	exited   chan struct{}
}

// startPooler creates the role of role.sql, as a superuser, and starts a pooler for all
// databases of the server.
func startPooler(ctx context.Context, options options) (*pooler, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	server, err := pgx.ParseConfig(options.server)
	if err != nil {
		return nil, fmt.Errorf("pgbouncer: %w", err)
	}
	if err := createRole(ctx, server); err != nil {
		return nil, fmt.Errorf("pgbouncer: role: %w", err)
	}
	for attempt := 1; ; attempt++ {
		p := &pooler{password: server.Password, port: options.port, exited: make(chan struct{})}
		err := p.start(ctx, options, server)
		if err == nil {
			return p, nil
		}
		if attempt == maxAttempts || !strings.Contains(err.Error(), "cannot listen") {
			return nil, fmt.Errorf("pgbouncer: %w", err)
		}
	}
}

func (p *pooler) start(ctx context.Context, options options, server *pgx.ConnConfig) error {
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
	if err := p.configure(folder, server, options.settings); err != nil {
		return errors.Join(err, os.RemoveAll(folder))
	}
	return p.launch(ctx, folder)
}

// createRole creates the role unless it exists, and applies the settings of role.sql.
func createRole(ctx context.Context, server *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, server)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE ROLE "+roleName+" LOGIN SUPERUSER")
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42710" { // the role exists
		err = nil
	}
	if err != nil {
		return err
	}
	if server.Password != "" {
		password := "'" + strings.ReplaceAll(server.Password, "'", "''") + "'"
		if _, err := conn.Exec(ctx, "ALTER ROLE "+roleName+" PASSWORD "+password); err != nil {
			return err
		}
	}
	settings, err := os.ReadFile(filepath.Join(files, "role.sql"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, string(settings), pgx.QueryExecModeSimpleProtocol)
	return err
}

// freePort returns a free port. It is random and below the ephemeral ports of the
// system, so that it is probably still free when a killed pooler is restarted there.
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
		if attempt == maxAttempts {
			return 0, err
		}
	}
}

// configure writes the pooler's files: pgbouncer.ini, and then lines that override its
// addresses. They continue the last section, because a second header would reset its
// settings.
func (p *pooler) configure(folder string, server *pgx.ConnConfig, settings string) error {
	configuration, err := os.ReadFile(filepath.Join(files, "pgbouncer.ini"))
	if err != nil {
		return err
	}
	users := filepath.Join(folder, "userlist.txt")
	lines := []string{
		string(configuration),
		"listen_port = " + strconv.Itoa(p.port),
		"auth_file = " + users,
		"unix_socket_dir =",
	}
	if os.Geteuid() == 0 {
		lines = append(lines, "user = nobody") // PgBouncer does not run as root
	}
	lines = append(lines,
		settings,
		"[databases]",
		fmt.Sprintf("* = host=%s port=%d", server.Host, server.Port),
		"",
	)
	return errors.Join(
		os.WriteFile(users, fmt.Appendf(nil, "%q %q\n", roleName, p.password), 0o600),
		os.WriteFile(filepath.Join(folder, "pgbouncer.ini"), []byte(strings.Join(lines, "\n")), 0o600),
	)
}

// watcher is the shell script that runs a pooler. Its arguments are a folder to remove
// at the end and the pooler's command line. Standard input is a pipe whose other end
// only our process holds. When our process exits, the read ends and the pooler is
// killed. It has no state to lose.
const watcher = `
folder=$1; shift
exec 9<&0
"$@" </dev/null 9<&- & pooler=$!
exec >/dev/null 2>&1 # printing after our process exited would kill the shell
{ read -r line <&9; kill -KILL $pooler; } & watch=$!
wait $pooler; status=$?
kill $watch
rm -rf "$folder"
exit $status`

// launch starts the pooler and waits until it reports that it is up.
func (p *pooler) launch(ctx context.Context, folder string) error {
	input, pipe, err := os.Pipe()
	if err != nil {
		return err
	}
	defer input.Close()
	p.pipe = pipe
	output, printed := io.Pipe()
	cmd := exec.Command("/bin/sh", "-c", watcher, "sh", folder, os.Getenv(program), filepath.Join(folder, "pgbouncer.ini"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, printed, printed
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C does not reach them
	if err := cmd.Start(); err != nil {
		return errors.Join(err, pipe.Close(), os.RemoveAll(folder))
	}
	go func() {
		defer close(p.exited)
		printed.CloseWithError(errors.Join(errors.New("the pooler exited"), cmd.Wait()))
	}()
	up := make(chan string, 1)
	failed := make(chan error, 1)
	go func() { failed <- readOutput(output, up) }()
	select {
	case p.version = <-up:
		return nil
	case err = <-failed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return errors.Join(err, p.stop())
}

var upLine = regexp.MustCompile(`process up: PgBouncer ([0-9.]+)`)

// readOutput reads the pooler's output and sends its version when the pooler is up. If
// it does not start, the error contains the output. Later output is discarded.
func readOutput(output *io.PipeReader, up chan<- string) error {
	defer output.Close() // otherwise the pooler would block on a write
	var printed strings.Builder
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if match := upLine.FindStringSubmatch(lines.Text()); match != nil {
			up <- match[1]
			_, err := io.Copy(io.Discard, output)
			return err
		}
		printed.WriteString("\n" + lines.Text())
	}
	return fmt.Errorf("%w%s", lines.Err(), &printed)
}

// url returns the connection string of one of the server's databases, with the query
// mode of docs/scaling.md, which leaves no prepared statements in a session.
func (p *pooler) url(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(roleName, p.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable&default_query_exec_mode=cache_describe",
	}
	return u.String()
}

// stop kills the pooler and waits until it has exited.
func (p *pooler) stop() error {
	err := p.pipe.Close()
	<-p.exited
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
