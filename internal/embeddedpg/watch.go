package embeddedpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// watcher is the shell program that a server runs under. Its arguments are the
// signal that stops the server, a folder to remove then (or nothing), and the
// server's command line.
//
// Standard input is a pipe whose other end only our process holds. When that
// ends, for whatever reason, the read fails and the server is stopped; this is
// also how we stop it. A line through the pipe detaches the server instead. When
// the server ends first, the read is killed and the shell passes on the status.
// Only builtins are needed, rm aside. That one frees the memory which the data
// may take; when the shell runs as nobody, the folder itself is left for the next
// sweep.
const watcher = `
signal=$1 trash=$2; shift 2
exec 9<&0
"$@" </dev/null 9<&- & server=$!
{ read -r line <&9; kill -"$signal" $server; } 2>/dev/null & watch=$!
wait $server; status=$?
kill $watch 2>/dev/null
wait $watch 2>/dev/null && [ -n "$trash" ] && rm -rf "$trash/data" "$trash" 2>/dev/null
exit $status`

// program is a command line and what surrounds it.
type program struct {
	args   []string // the first is the program's path
	as     account
	dir    string // working and home folder
	signal string // stops it: QUIT at once, INT after all data is on disk
	trash  string // removed after it was stopped or, detached, has ended
	log    *os.File
	lock   *os.File // is held as long as the program has it open
}

// command returns a command with the clean environment that all programs of
// PostgreSQL get: messages in English, times in UTC.
func (p program) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...) //nolint:noctx // the server outlives the context of its start
	cmd.Dir = p.dir
	cmd.Env = []string{"HOME=" + p.dir, "LC_ALL=C", "PATH=/usr/bin:/bin", "TZ=UTC"}
	cmd.SysProcAttr = attributes(p.as)
	return cmd
}

// process is a program that runs under a watcher.
type process struct {
	pid    int           // the watcher's, and of the process group
	leash  *os.File      // our end of the pipe
	exited chan struct{} // closed when the program has ended
	status string        // how; set before exited is closed
}

// start runs the program under a watcher.
func (p program) start() (*process, error) {
	input, leash, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer input.Close()
	cmd := p.command("/bin/sh", append([]string{"-c", watcher, "sh", p.signal, p.trash}, p.args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, p.log, p.log
	cmd.ExtraFiles = []*os.File{p.lock}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start as user %d: %w", p.as.uid, err), leash.Close())
	}
	started := &process{pid: cmd.Process.Pid, leash: leash, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the status says all
		_ = leash.Close()
		started.status = cmd.ProcessState.String()
		close(started.exited)
	}()
	return started, nil
}

// stop lets go of the program and waits for its end. A program that takes too
// long is killed.
func (p *process) stop(patience time.Duration) error {
	_ = p.leash.Close() // closed already if the program has just ended
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.exited:
		return nil
	case <-timer.C:
		return errors.Join(fmt.Errorf("the server did not stop within %s and was killed", patience), p.kill())
	}
}

// kill ends the program and its watcher at once.
func (p *process) kill() error {
	select {
	case <-p.exited:
		return nil
	default:
	}
	err := killGroup(p.pid)
	<-p.exited
	return err
}
