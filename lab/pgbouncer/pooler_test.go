//go:build pgbouncer

// Package pgbouncer_test runs the program and the tests of its module through PgBouncer
// in transaction mode, with the files of deploy/pgbouncer: make -C lab pgbouncer-check.
// docs/scaling.md explains the files.
package pgbouncer_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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

	"example.com/orders-api/lab/labtest"
)

// program is the variable with the path of PgBouncer.
const program = "PGBOUNCER"

const files = "../../deploy/pgbouncer"

const roleName = "orders"

// startTimeout bounds the start of a pooler, which takes about 20 ms.
const startTimeout = 30 * time.Second

// maxAttempts bounds the starts of a pooler. Another program may have taken the port.
const maxAttempts = 5

type options struct {
	server   string // the URL of a superuser, whose password the role gets
	port     int    // at 127.0.0.1; 0: a free port
	settings string // appended to pgbouncer.ini
}

type pooler struct {
	version  string // such as 1.18.0
	password string // of the role
	port     int
	pipe     *os.File // closing this end kills the pooler
	exited   chan struct{}
}

// startPooler creates the role of role.sql as a superuser and starts a pooler for all
// databases.
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
		if p.port, err = labtest.FreePort(); err != nil {
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

// configure appends lines to pgbouncer.ini. They continue the last section, because a
// second header would reset it.
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

// watcher is a shell script whose arguments are a folder to remove and the pooler's
// command line. Only this process holds the other end of its standard input. When this
// process exits, the read ends and the script kills the pooler.
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must not reach them
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

// readOutput sends the pooler's version when it is up, and discards later output. If the
// pooler does not start, the error contains its output.
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

// url returns the connection string of a database with the query mode of docs/scaling.md.
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

func (p *pooler) stop() error {
	err := p.pipe.Close()
	<-p.exited
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
