package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// script repeats a witness by hand: its requests, broken connections and faults with their
// times, as lines for sh. The keys are new ones.
type script struct {
	run     *runInfo
	keys    map[string]string // variables by their header line
	bodies  map[string]string // variables by body
	targets map[string]string // functions by the command that they run
	defined []string
	lines   []string
}

// moment is a request or a fault of a script.
type moment struct {
	at, ended float64
	attempt   *attempt
	command   string
	restores  bool
}

const (
	together    = 0.02 // seconds between requests that are sent at the same time
	shortest    = 0.01 // seconds until curl breaks a connection, because it needs some to send a request
	mostScripts = 40   // lines
)

// script returns the lines that repeat what happened to keys.
func (l *ledger) script(lives []*life, faults []event) string {
	s := script{run: &l.run, keys: make(map[string]string), bodies: make(map[string]string), targets: make(map[string]string)}
	var moments []moment
	for _, one := range lives {
		for _, a := range one.attempts {
			if a.Cut != cutBefore.String() {
				moments = append(moments, moment{at: a.Sent, ended: a.Ended, attempt: a})
			}
		}
	}
	if len(moments) == 0 {
		return ""
	}
	for _, e := range faults {
		moments = append(moments, moment{at: e.At, ended: e.At, command: l.run.command(e.Fault), restores: faultNames[e.Fault.Name] == ""})
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	running, disturbed := 0.0, false
	for i, m := range moments {
		wait := 0.0
		if i > 0 {
			wait = m.at - moments[i-1].at
		}
		switch {
		case running > 0 && m.at >= running:
			s.lines = append(s.lines, "wait")
			running = 0
		case running > 0 && wait > together, wait > 1 && len(faults) == 0 && !s.retries():
			s.lines = append(s.lines, fmt.Sprintf("sleep %.2f", wait))
		}
		if m.attempt == nil {
			s.lines, disturbed = append(s.lines, m.command), m.restores
			continue
		}
		line := s.send(m.attempt)
		if i+1 < len(moments) && moments[i+1].at < m.ended {
			running = max(running, m.ended)
			s.lines = append(s.lines, line+" &")
			continue
		}
		s.foreground(line, m.attempt, disturbed && running == 0)
	}
	if running > 0 {
		s.lines = append(s.lines, "wait")
	}
	s.compress()
	if len(s.lines) > mostScripts {
		return ""
	}
	return strings.Join(append(s.defined, s.lines...), "\n")
}

// foreground adds a request that has no other one beside it. One that is sent until it
// succeeds is a loop.
func (s *script) foreground(line string, a *attempt, disturbed bool) {
	loop := "until " + line + "; do sleep 0.2; done"
	last := len(s.lines) - 1
	repeated := last >= 0 && (s.lines[last] == line+openMark || s.lines[last] == loop)
	switch {
	case a.Answer == succeeded && repeated:
		s.lines[last] = loop
	case a.Answer == succeeded && disturbed && !slices.Contains(s.lines, loop):
		s.lines = append(s.lines, loop)
	case a.Answer == open && a.Cut == "" && repeated:
	case a.Answer == open && a.Cut == "":
		s.lines = append(s.lines, line+openMark)
	default:
		s.lines = append(s.lines, line)
	}
}

// retries reports whether the last request has no final response yet.
func (s *script) retries() bool {
	return len(s.lines) > 0 && strings.HasSuffix(s.lines[len(s.lines)-1], openMark)
}

// openMark follows a request without a final response.
const openMark = " # no final response"

// compress makes a loop of equal requests at the same time, in any order.
func (s *script) compress() {
	var lines []string
	for i := 0; i < len(s.lines); {
		burst := i
		for burst < len(s.lines) && strings.HasSuffix(s.lines[burst], " &") {
			burst++
		}
		counts := make(map[string]int)
		for _, line := range s.lines[i:burst] {
			counts[line]++
		}
		for _, line := range s.lines[i:burst] {
			n := counts[line]
			counts[line] = 0
			if n > 1 {
				line = "for i in" + strings.Repeat(" -", n) + "; do " + line + " done"
			}
			if n > 0 {
				lines = append(lines, line)
			}
		}
		if burst < len(s.lines) {
			lines = append(lines, s.lines[burst])
		}
		i = burst + 1
	}
	s.lines = lines
}

// send is the line that sends a request.
func (s *script) send(a *attempt) string {
	line := s.function(a)
	for _, key := range a.Keys {
		line += ` -H "$` + s.variable(s.keys, "key", s.run.KeyHeader+": "+fresh(key)) + `"`
	}
	if a.Body != "" {
		line += ` --data-raw "$` + s.variable(s.bodies, "body", a.Body) + `"`
	}
	switch a.Cut {
	case "":
		return line
	case cutRunning.String():
		return line + fmt.Sprintf(" --max-time %.3f", max(a.Ended-a.Sent, shortest)) // the connection breaks
	default:
		return line + " -o /dev/null" // the response is lost
	}
}

func (s *script) variable(all map[string]string, kind, value string) string {
	return s.define(all, kind, value, "%s="+strings.ReplaceAll(shellQuoted(value), "%", "%%"))
}

// define defines something at its first use.
func (s *script) define(all map[string]string, kind, value, definition string) string {
	if all[value] == "" {
		all[value] = kind
		if len(all) > 1 {
			all[value] += itoa(len(all))
		}
		s.defined = append(s.defined, fmt.Sprintf(definition, all[value]))
	}
	return all[value]
}

// function is one that sends requests to the address with the credential of an attempt.
func (s *script) function(a *attempt) string {
	command := `curl -fsS -w ' %%{http_code}\n' -X ` + a.Method
	headers := maps.Clone(s.run.Headers)
	if headers == nil {
		headers = make(map[string]string)
	}
	maps.Copy(headers, s.run.Credentials[a.Who])
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		command += " -H " + strings.ReplaceAll(expandable(name+": "+headers[name]), "%", "%%")
	}
	command += ` "$@" ` + strings.ReplaceAll(shellQuoted(cmp.Or(a.Address, s.run.URL)+a.Path), "%", "%%")
	return s.define(s.targets, "send", command, "%s() { "+command+"; }")
}

// command runs a command of the profile file as the suite does.
func (r *runInfo) command(f *fault) string {
	text := "sh -c " + shellQuoted(cmp.Or(r.Commands[f.Name], "# "+f.Name))
	switch {
	case f.Name == "start":
		return text + "\nuntil curl -s -o /dev/null " + shellQuoted(r.URL+"/") + "; do sleep 0.1; done"
	case f.Key != "":
		text = "IDEMPOTENCY_KEY=" + fresh(f.Key) + " " + text
	}
	return text
}

var random = regexp.MustCompile(`[0-9a-f]{8,}`)

// fresh replaces the random part of a key, because the server knows the key.
func fresh(key string) string {
	return random.ReplaceAllStringFunc(key, func(part string) string {
		sum := sha256.Sum256([]byte("by hand " + part))
		return strings.Repeat(hex.EncodeToString(sum[:]), 1+len(part)/64)[:len(part)]
	})
}

// expandable quotes a text for sh, in which ${NAME} is the environment variable.
func expandable(text string) string {
	if !variable.MatchString(text) {
		return shellQuoted(text)
	}
	quoted := regexp.MustCompile("[\"`\\\\]|\\$").ReplaceAllString(text, `\$0`)
	return `"` + strings.ReplaceAll(quoted, `\${`, "${") + `"`
}

func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
