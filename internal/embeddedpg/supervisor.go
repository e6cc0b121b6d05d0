package embeddedpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// supervisor is the shell program that runs the server. Its arguments are the signal that
// stops the server, a folder to remove then or "", and the server's command line.
//
// Standard input is a pipe whose other end only this process holds. When it is closed,
// by stop or because this process ended, the read fails and the server is stopped. If
// the server ends first, the read is killed. rm frees the memory of the data; as
// nobody, it leaves the folder itself for the next sweep.
const supervisor = `
signal=$1 folder=$2; shift 2
exec 9<&0
"$@" </dev/null 9<&- & server=$!
{ read -r line <&9; kill -"$signal" $server; } 2>/dev/null & watch=$!
wait $server; status=$?
kill $watch 2>/dev/null
wait $watch 2>/dev/null && [ -n "$folder" ] && rm -rf "$folder/data" "$folder" 2>/dev/null
exit $status`

type program struct {
	args   []string // the first is the program's path
	as     osUser
	dir    string // working and home folder
	signal string // stops it: QUIT at once, INT after all data is on disk
	remove string // a folder that is removed after the stop, or ""
	log    *os.File
	lock   *os.File // is held as long as the program has it open
}

// command returns a command with a clean environment: messages in English, times in
// UTC.
func (p program) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...) //nolint:noctx // the server outlives the context of its start
	cmd.Dir = p.dir
	cmd.Env = []string{"HOME=" + p.dir, "LC_ALL=C", "PATH=/usr/bin:/bin", "TZ=UTC"}
	cmd.SysProcAttr = attributes(p.as)
	return cmd
}

type process struct {
	pid    int           // of the supervisor, and of its process group
	input  *os.File      // when it is closed, the program stops
	exited chan struct{} // closed when the program has ended
	status string        // how; set before exited is closed
}

func (p program) start() (*process, error) {
	read, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	cmd := p.command("/bin/sh", append([]string{"-c", supervisor, "sh", p.signal, p.remove}, p.args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = read, p.log, p.log
	cmd.ExtraFiles = []*os.File{p.lock}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start as user %d: %w", p.as.uid, err), input.Close())
	}
	started := &process{pid: cmd.Process.Pid, input: input, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // exitError reports the status
		_ = input.Close()
		started.status = cmd.ProcessState.String()
		close(started.exited)
	}()
	return started, nil
}

// stop closes the pipe and waits for the end. After the timeout it kills the program.
func (p *process) stop(timeout time.Duration) error {
	_ = p.input.Close() // closed already if the program has just ended
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.exited:
		return nil
	case <-timer.C:
		err := killGroup(p.pid)
		<-p.exited
		return errors.Join(fmt.Errorf("the server did not stop within %s and was killed", timeout), err)
	}
}
