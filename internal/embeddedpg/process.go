package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// nobody is an unprivileged user and group on Linux, and an unused id on macOS.
const nobody = 65534

// asNobody reports whether the server runs as nobody, because PostgreSQL rejects root.
func asNobody() bool { return os.Geteuid() == 0 }

// attributes sets the user of a child process, and its group, which Ctrl-C does not reach.
func attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if asNobody() {
		attr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return attr
}

func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }

// canReach reports whether the server's user can enter a folder.
func canReach(path string) bool {
	if !asNobody() {
		return true
	}
	cmd := exec.Command("/bin/sh", "-c", `[ -x "$0" ]`, path) //nolint:noctx // ends at once
	cmd.Dir = "/"
	cmd.SysProcAttr = attributes()
	return cmd.Run() == nil
}

func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"HOME=" + s.dir, "LC_ALL=C", "PATH=/usr/bin:/bin", "TZ=UTC"}
	cmd.SysProcAttr = attributes()
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	return cmd
}

// supervisor is a shell script that stops the server when standard input is closed. Only this process
// holds the other end, so the server also stops if this process is killed. The arguments are the signal
// that stops the server, a folder to remove afterwards or "", and the server's command line. If rm runs
// as the user nobody, it can remove only the data, and the next sweep removes the folder.
const supervisor = `
signal=$1 folder=$2; shift 2
exec 9<&0
"$@" </dev/null 9<&- & server=$!
{ read -r line <&9; kill -"$signal" $server; } 2>/dev/null & watch=$!
wait $server; status=$?
kill $watch 2>/dev/null
wait $watch 2>/dev/null && [ -n "$folder" ] && rm -rf "$folder/data" "$folder" 2>/dev/null
exit $status`

type process struct {
	pid    int // of the supervisor and its group
	input  *os.File
	exited chan struct{}
	status string // valid once exited is closed
}

func (s *Server) startProcess(ctx context.Context, args []string) (*process, error) {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	read, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	signal, remove := "QUIT", s.dir // QUIT stops at once, INT after all data is on disk
	if s.kept() {
		signal, remove = "INT", ""
	}
	cmd := s.command(context.WithoutCancel(ctx), "/bin/sh", append([]string{"-c", supervisor, "sh", signal, remove}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = read, log, log
	cmd.ExtraFiles = []*os.File{s.lock}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the server: %w", err), input.Close())
	}
	started := &process{pid: cmd.Process.Pid, input: input, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		_ = input.Close()
		started.status = cmd.ProcessState.String()
		close(started.exited)
	}()
	return started, nil
}

func (p *process) stop(timeout time.Duration) error {
	_ = p.input.Close()
	select {
	case <-p.exited:
		return nil
	case <-time.After(timeout):
		err := killGroup(p.pid)
		<-p.exited
		return errors.Join(fmt.Errorf("the server did not stop within %s and was killed", timeout), err)
	}
}
