package api_test

import (
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type logCapture struct {
	mu      sync.Mutex
	text    strings.Builder
	lines   []map[string]any
	written chan struct{}
}

func newLogCapture() *logCapture { return &logCapture{written: make(chan struct{})} }

func (l *logCapture) Write(line []byte) (int, error) {
	var attrs map[string]any
	err := json.Unmarshal(line, &attrs)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, attrs)
	close(l.written)
	l.written = make(chan struct{})
	l.text.Write(line)
	return len(line), err
}

func (l *logCapture) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logCapture) await(t *testing.T, want map[string]any) map[string]any {
	t.Helper()
	deadline := time.After(stepTimeout)
	for {
		l.mu.Lock()
		lines, written := l.lines, l.written
		l.mu.Unlock()
		for _, line := range lines {
			found := maps.Clone(want)
			maps.DeleteFunc(found, func(name string, value any) bool { return line[name] == value })
			if len(found) == 0 {
				return line
			}
		}
		select {
		case <-written:
		case <-deadline:
			require.Fail(t, "no such line in the log", "%v", want)
		}
	}
}

type secrets struct {
	mu     sync.Mutex
	values []string
}

func (s *secrets) add(values ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range values {
		if v = strings.Trim(v, ` "`); len(v) >= 6 { // shorter ones are invalid keys
			s.values = append(s.values, v)
		}
	}
}

func (s *secrets) in(text string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []string
	for _, v := range s.values {
		if strings.Contains(text, v) {
			found = append(found, v)
		}
	}
	return found
}
