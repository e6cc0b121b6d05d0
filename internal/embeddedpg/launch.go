package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// startTimeout bounds the start of a server: 30 ms, or after a crash the replay of
	// its log.
	startTimeout = time.Minute

	// portAttempts bounds the choices of a port: another process may take it before the
	// server does.
	portAttempts = 5
)

func (s *Server) program() program {
	p := program{as: s.as, dir: s.Dir(), signal: "INT", log: s.log, lock: s.data.lock}
	if !s.data.kept {
		p.signal, p.remove = "QUIT", s.Dir()
	}
	return p
}

func (s *Server) launch(ctx context.Context) error {
	var err error
	if s.log, err = os.OpenFile(filepath.Join(s.Dir(), "server.log"), os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout,
		fmt.Errorf("the server was not ready within %s", startTimeout))
	defer cancel()
	for attempt := 1; ; attempt++ {
		if s.port, err = s.freePort(); err != nil {
			return err
		}
		p := s.program()
		p.args = s.commandLine()
		since := time.Now()
		if s.process, err = p.start(); err != nil {
			return err
		}
		err = s.waitReady(ctx, since)
		if err == nil || attempt == portAttempts || !strings.Contains(err.Error(), "Address already in use") {
			return err
		}
		if err := s.log.Truncate(0); err != nil {
			return err
		}
	}
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func (s *Server) commandLine() []string {
	settings := map[string]string{
		"max_connections":         "300", // each parallel test has a pool
		"unix_socket_directories": "",    // a path of a socket is limited to 103 bytes
	}
	if !s.data.kept {
		maps.Copy(settings, map[string]string{
			"fsync":              "off",
			"synchronous_commit": "off",
			"full_page_writes":   "off",
			"max_wal_size":       "256MB", // the data may be in memory
		})
	}
	maps.Copy(settings, s.options.Settings)
	settings["listen_addresses"] = "127.0.0.1"
	settings["port"] = strconv.Itoa(s.port)

	line := []string{s.found.postgres(), "-D", s.dataDir()}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		line = append(line, "-c", name+"="+settings[name])
	}
	return line
}

// waitReady reads the server's status file, which needs no connection.
func (s *Server) waitReady(ctx context.Context, since time.Time) error {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		status, err := os.ReadFile(filepath.Join(s.dataDir(), "postmaster.pid"))
		if err == nil && s.ready(strings.Split(string(status), "\n"), since) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w\n%s", context.Cause(ctx), s.lastLog())
		case <-s.process.exited:
			return s.exitError()
		case <-poll.C:
		}
	}
}

// ready reads the lines of the status file: process id, data folder, start time, port,
// two addresses, a memory key and the state. The port or the time distinguish a file
// that an earlier server left after a crash. A standby remains in the state "standby".
func (s *Server) ready(status []string, since time.Time) bool {
	if len(status) < 8 || !slices.Contains([]string{"ready", "standby"}, strings.TrimSpace(status[7])) {
		return false
	}
	pid, err1 := strconv.Atoi(status[0])
	started, err2 := strconv.ParseInt(status[2], 10, 64)
	port, err3 := strconv.Atoi(status[3])
	if errors.Join(err1, err2, err3) != nil || started < since.Unix() || port != s.port {
		return false
	}
	s.pid = pid
	return true
}

func (s *Server) exitError() error {
	return fmt.Errorf("the server ended by itself (%s):\n%s", s.process.status, s.lastLog())
}

func (s *Server) lastLog() string {
	log, err := os.ReadFile(s.log.Name())
	if err != nil {
		return err.Error()
	}
	return lastLines(log, 15)
}

func lastLines(text []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
