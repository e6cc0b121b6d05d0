package deploy_test

import (
	"bytes"
	"crypto/rand"
	"debug/elf"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// An empty image has no loader and no C library.
func TestPrograms_static(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"orders", "stripetest"} {
		file, err := elf.Open(program(t, name))
		require.NoError(t, err)
		defer file.Close()
		for _, segment := range file.Progs {
			require.NotEqual(t, elf.PT_INTERP, segment.Type, name)
		}
		libraries, err := file.ImportedLibraries()
		require.True(t, err != nil || len(libraries) == 0, "%s needs %v", name, libraries)
	}
}

// image is a folder that contains only the programs.
type image struct {
	t    *testing.T
	root string
}

func newImage(t *testing.T) image {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"orders", "stripetest"} {
		content, err := os.ReadFile(program(t, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), content, 0o555))
	}
	require.NoError(t, os.Chmod(folder, 0o555))
	t.Cleanup(func() { _ = os.Chmod(folder, 0o755) })
	return image{t, folder}
}

// confinement makes the folder a process's root, with the image's user. A user other than
// root needs a user namespace for that.
func (i image) confinement() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Chroot: i.root}
	if os.Getuid() == 0 {
		attributes.Credential = &syscall.Credential{Uid: 65532, Gid: 65532}
		return attributes
	}
	attributes.Cloneflags = syscall.CLONE_NEWUSER
	attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 65532, HostID: os.Getuid(), Size: 1}}
	attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 65532, HostID: os.Getgid(), Size: 1}}
	return attributes
}

type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	mu     sync.Mutex
	output bytes.Buffer
	exited chan struct{}
}

func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(text)
}

func (p *process) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// start starts a program, which ends with the test.
func start(t *testing.T, cmd *exec.Cmd) (*process, error) {
	t.Helper()
	p := &process{t: t, cmd: cmd, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p, p
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // wait returns the exit code
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // most have exited
		kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		<-p.exited
		if t.Failed() {
			t.Logf("%q: %s\n%s", cmd.Args, cmd.ProcessState, p)
		}
	})
	return p, nil
}

// start runs a program in its empty root, with only this environment. Without the
// permission to change the root, it uses an empty working directory and logs that.
func (i image) start(environment []string, name string, args ...string) *process {
	i.t.Helper()
	confined := func() (*process, error) {
		cmd := exec.Command("/"+name, args...)
		cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", append([]string{}, environment...), i.confinement()
		return start(i.t, cmd)
	}
	p, err := confined()
	for errors.Is(err, syscall.ETXTBSY) { // a child of another test still has the file open (golang/go#22315)
		<-time.After(10 * time.Millisecond)
		p, err = confined()
	}
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		i.t.Logf("%s runs without a private root: %v", name, err)
		cmd := exec.Command(filepath.Join(i.root, name), args...)
		cmd.Dir, cmd.Env = i.root, append([]string{}, environment...)
		p, err = start(i.t, cmd)
	}
	require.NoError(i.t, err)
	return p
}

// newDatabase returns the URLs of an empty database, for the role that migrates and for
// the role of all other commands. The server is that of playground run.
func newDatabase(t *testing.T) (owner, user string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "orders-dev-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	cache := filepath.Join(folder, "cache")
	require.NoError(t, os.Mkdir(cache, 0o755))
	require.NoError(t, os.Chmod(folder, 0o755)) // PostgreSQL does not run as root
	playground := filepath.Join(folder, "playground")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", playground, "./cmd/playground")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.Command(playground, "run")
	cmd.Env = os.Environ()
	for name := range knownVariables(t) {
		cmd.Env = append(cmd.Env, name+"=")
	}
	cmd.Env = append(cmd.Env, "ADMIN_ADDR=", "XDG_CACHE_HOME="+cache, "LISTEN_ADDR=127.0.0.1:0")
	dev, err := start(t, cmd)
	require.NoError(t, err)
	address, err := url.Parse(dev.waitFor(`(?m)^PostgreSQL +psql '(postgres://.*)'$`))
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), address.String())
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "CREATE DATABASE orders")
	require.NoError(t, errors.Join(err, conn.Close(t.Context())))
	address.Path = "/orders"
	conn, err = pgx.Connect(t.Context(), address.String())
	require.NoError(t, err)
	password := rand.Text()
	_, err = conn.Exec(t.Context(), strings.Replace(read(t, "deploy/roles.sql"), `\set ON_ERROR_STOP on`, "", 1)+ // of psql
		"ALTER ROLE orders_owner PASSWORD '"+password+"'; ALTER ROLE orders PASSWORD '"+password+"'")
	require.NoError(t, errors.Join(err, conn.Close(t.Context())))
	parameters := address.Query()
	parameters.Del("passfile") // it is not in the image's root
	address.RawQuery = parameters.Encode()
	as := func(role string) string {
		address.User = url.UserPassword(role, password)
		return address.String()
	}
	return as("orders_owner"), as("orders")
}

// patience bounds every wait. A busy machine may need it to download PostgreSQL.
const patience = 3 * time.Minute

func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		require.Fail(p.t, "the process has not exited", "%v", p.cmd.Args)
		return 0
	}
}

// waitFor waits until the output matches, and returns the first group.
func (p *process) waitFor(pattern string) string {
	p.t.Helper()
	expression := regexp.MustCompile(pattern)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for {
		if match := expression.FindStringSubmatch(p.String()); match != nil {
			return match[1]
		}
		select {
		case <-ticker.C:
		case <-p.exited:
			require.Regexp(p.t, expression, p.String(), "the process has exited")
		case <-deadline:
			require.Fail(p.t, "the output has not matched", pattern)
		}
	}
}

// All steps of compose-check.sh except the mail.
func TestPrograms_emptyRoot(t *testing.T) {
	t.Parallel()
	i := newImage(t)
	stripe := i.start(nil, "stripetest", "-addr", "127.0.0.1:0")
	provider := stripe.waitFor(`(http://[0-9.:]+)\n`)
	owner, user := newDatabase(t)
	environment := []string{
		"DATABASE_URL=" + user,
		"LISTEN_ADDR=127.0.0.1:0",
		"ADMIN_ADDR=", // the default may be in use
		"STRIPE_API_BASE=" + provider,
		"STRIPE_SECRET_KEY=sk_test_fake",
	}

	migrate := i.start(environment, "orders", "migrate", "up")
	require.NotZero(t, migrate.wait(), "the role may not change the schema")
	require.Contains(t, migrate.String(), "permission denied")
	migrate = i.start([]string{"DATABASE_URL=" + owner}, "orders", "migrate", "up")
	require.Zero(t, migrate.wait(), migrate)
	require.Regexp(t, `applied: [1-9]`, migrate.String())
	account := i.start(environment, "orders", "accounts", "create", "--name", "My shop")
	require.Zero(t, account.wait(), account)
	key := regexp.MustCompile(`(?m)^ok_\w+$`).FindString(account.String())

	api := i.start(environment, "orders", "serve", "--shutdown-delay=0s")
	address := api.waitFor(`msg=listening address=([0-9.:]+)\n`)
	out, err := exec.CommandContext(t.Context(), "./order.sh", "http://"+address, key, provider).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, command := range []string{"completer", "reaper", "reconcile"} {
		run := i.start(environment, "orders", command)
		require.Zero(t, run.wait(), command)
	}

	require.NoError(t, api.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, api.wait())
	require.Contains(t, api.String(), "msg=stopped")
}
