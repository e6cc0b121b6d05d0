package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// process is a server that can be killed and started again.
type process struct {
	command func() *exec.Cmd
	ready   func(ctx context.Context) error
	log     io.Writer

	running *exec.Cmd
	done    chan struct{}
}

const startLimit = time.Minute

// start returns when the process is ready.
func (p *process) start(ctx context.Context) error {
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true // kill also ends what the process has started
	if err := cmd.Start(); err != nil {
		return err
	}
	p.running, p.done = cmd, make(chan struct{})
	done := p.done
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := p.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("%s: %s", cmd, cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", cmd, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (p *process) signal(signal syscall.Signal) error {
	if p.running == nil {
		return errors.New("the process is not running")
	}
	return syscall.Kill(-p.running.Process.Pid, signal)
}

// kill sends SIGKILL and returns when the process and its children have ended: a child may
// accept a connection for a moment longer, which start would take for a server that is ready.
func (p *process) kill(ctx context.Context) error {
	if p.running == nil {
		return nil
	}
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	<-p.done
	p.running = nil
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for p.ready(ctx) == nil {
		time.Sleep(time.Millisecond)
	}
	return nil
}

// freeAddress returns a loopback address. Its port is below those that the kernel gives to
// listeners without one, so none of them takes it while a server is killed.
func freeAddress() (string, error) {
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(12000))) //nolint:gosec // a port is no secret
		listener, err := net.Listen("tcp", address)
		if err == nil {
			return address, listener.Close()
		}
	}
	return "", errors.New("there is no free port between 20000 and 32000")
}

func connects(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return connection.Close()
	}
}

// startRedis starts a Redis that writes every command to a file, so that it loses nothing
// when it is killed. It returns its URL.
func startRedis(ctx context.Context, folder string, log io.Writer) (*process, string, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, "", errors.New("this store needs redis-server, for example: apt-get install -y redis-server")
	}
	address, err := freeAddress()
	if err != nil {
		return nil, "", err
	}
	_, port, _ := net.SplitHostPort(address)
	p := &process{log: log, ready: pings(address), command: func() *exec.Cmd {
		return exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--dir", folder, //nolint:gosec,noctx // kill ends it
			"--save", "", "--appendonly", "yes", "--appendfsync", "always")
	}}
	return p, "redis://" + address, p.start(ctx)
}

// pings reports whether Redis has loaded its file.
func pings(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer func() { _ = connection.Close() }()
		if err := connection.SetDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		if _, err := io.WriteString(connection, "PING\r\n"); err != nil {
			return err
		}
		answer := make([]byte, 5)
		if _, err := io.ReadFull(connection, answer); err != nil {
			return err
		}
		if string(answer) != "+PONG" {
			return fmt.Errorf("redis answers %q", answer)
		}
		return nil
	}
}

const nobody = 65534

// startPostgres creates a database with PostgreSQL's defaults and returns its URL.
func startPostgres(ctx context.Context, folder string, log io.Writer) (*process, string, error) {
	programs, err := postgresPrograms()
	if err != nil {
		return nil, "", err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, "", err
	}
	_, port, _ := net.SplitHostPort(address)
	data := filepath.Join(folder, "data")
	// PostgreSQL refuses to run as root.
	owner := func(cmd *exec.Cmd) *exec.Cmd {
		cmd.Dir = folder
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		return cmd
	}
	if os.Getuid() == 0 {
		if err := os.Chown(folder, nobody, nobody); err != nil {
			return nil, "", err
		}
	}
	initdb := owner(exec.CommandContext(ctx, filepath.Join(programs, "initdb"), "-D", data, "-U", "postgres", "--auth", "trust", "--no-sync")) //nolint:gosec // a program of the system
	initdb.Stdout, initdb.Stderr = log, log
	if err := initdb.Run(); err != nil {
		return nil, "", fmt.Errorf("initdb: %w", err)
	}
	accepts := func(ctx context.Context) error {
		return exec.CommandContext(ctx, filepath.Join(programs, "pg_isready"), "-q", "-h", "127.0.0.1", "-p", port).Run() //nolint:gosec // a program of the system
	}
	p := &process{log: log, ready: accepts, command: func() *exec.Cmd {
		return owner(exec.Command(filepath.Join(programs, "postgres"), "-D", data, "-p", port, "-h", "127.0.0.1", "-k", "")) //nolint:gosec,noctx // kill ends it
	}}
	return p, "postgres://postgres@" + address + "/postgres?sslmode=disable", p.start(ctx)
}

// postgresPrograms returns the folder with initdb, of the newest version that is installed.
func postgresPrograms() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), nil
	}
	program, err := exec.LookPath("initdb")
	if err != nil {
		return "", errors.New("this store needs PostgreSQL's server, for example: apt-get install -y postgresql")
	}
	return filepath.Dir(program), nil
}
