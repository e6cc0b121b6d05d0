package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// Most of the time, a test waits for slow requests.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role == "command" {
		main()
	} else if role != "" {
		if err := runRole(role); err != nil {
			panic(err)
		}
		return
	}
	_ = flag.Set("test.parallel", "12")
	os.Exit(m.Run())
}

const testProfile = `
url: ${SERVER}
account: {Authorization: "Bearer ${SECRET}"}
second_credential: {Authorization: Bearer secret-uno}
second_account: {Authorization: Bearer secret-two}
restricted_credential: {Authorization: Bearer secret-read}
operation:
  method: POST
  path: /things
  headers: {Content-Type: application/json, Api-Version: "1"}
  significant: {Api-Version: "2"}
  status: 201
  id: {pointer: /id}
  body: '{"color":"blue","quantity":2,"gift":true}'
  changed: '{"color":"blue","quantity":3,"gift":true}'
  invalid: '{"color":"blue","quantity":0,"gift":true}'
  declined: '{"color":"declined","quantity":2}'
second_operation:
  method: POST
  path: /others
  headers: {Content-Type: application/json, Api-Version: "1"}
  body: '{"color":"blue","quantity":2,"gift":true}'
slow:
  lasts: 300ms
  body: '{"color":"blue","quantity":2,"slow":true}'
effects:
  - {name: things, url: /things, list: /things, id: /id, only: {/state: made}}
  - {name: mails, url: /things, number: /mails}
status: {path: '/keys/{key}', expires: /expires_at}
preferences: [respond-async, wait]
overload: 32
retention: 72h
takeover: 1s
patience: 10s
crashes: 2
`

func environment(values ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(values); i += 2 {
			if values[i] == name {
				return values[i+1], true
			}
		}
		return "", false
	}
}

// newTestSuite returns a suite for a server in this process.
func newTestSuite(t *testing.T, s *server, edits ...string) *suite {
	t.Helper()
	p, err := parseProfile([]byte(strings.NewReplacer(edits...).Replace(testProfile)),
		environment("SERVER", s.url, "SECRET", "secret-one"))
	require.NoError(t, err)
	checked := newSuite(p, highestLevel, 1)
	checked.poll = 10 * time.Millisecond
	checked.hooks = s.hooks()
	return checked
}

// states returns the clauses with this result.
func states(r report, wanted state) []string {
	found := []string{}
	for _, res := range r.Results {
		if res.State == wanted && res.Level > 0 {
			found = append(found, res.Clause)
		}
	}
	return found
}

func TestRun_conformingServer(t *testing.T) {
	t.Parallel()
	s := newTestSuite(t, newServer(t))
	require.NoError(t, s.preflight(t.Context(), "profile.yaml"))
	r := s.run(t.Context())
	require.Empty(t, states(r, fail), r.text())
	require.Empty(t, states(r, skipped), r.text())
	require.Len(t, r.Results, len(clauses()))
	require.Equal(t, highestLevel, r.Reached)
	require.Equal(t, []verdict{noViolation, noViolation}, []verdict{r.Safety, r.Liveness}, r.text())
	require.Equal(t, []string{"a query parameter (operation.query)", "a second process (urls)", "the order of a list (operation.body has none)"}, r.Uncovered)
	require.NotContains(t, r.text(), "secret-")
}

// faultyServers has the clauses that each fault violates. Most faults violate one. With a
// question mark, the timing decides.
func faultyServers() map[string][]string {
	return map[string][]string{
		"several keys":                    {"IR-1"},
		"key optional":                    {"IR-2"},
		"short keys":                      {"IR-3"},
		"forms differ":                    {"IR-4"},
		"key not repeated":                {"IR-5"},
		"keys of all accounts":            {"IR-6"},
		"fingerprint of the credential":   {"IR-7"},
		"fingerprint without gift":        {"IR-8"},
		"fingerprint without path":        {"IR-7", "IR-8"},
		"no fingerprint":                  {"IR-7", "IR-8", "IR-13", "IR-16", "IR-54"},
		"fingerprint of bytes":            {"IR-9"},
		"ambiguous JSON":                  {"IR-10"},
		"query ignored":                   {"IR-11"},
		"fingerprint of header fields":    {"IR-12"},
		"no check in progress":            {"IR-13", "IR-16?"},
		"validates first":                 {"IR-14"},
		"rejected requests use keys":      {"IR-15"},
		"checks, then stores":             {"IR-16", "IR-43?"},
		"effect before its record":        {"IR-13", "IR-17", "IR-19"}, // also of a decline
		"failures not stored":             {"IR-19", "IR-26"},
		"500 stored":                      {"IR-20"},
		"replay serialised again":         {"IR-24"},
		"replay without Location":         {"IR-25"},
		"replay not marked":               {"IR-26"},
		"replay has an effect":            {"IR-16", "IR-27"},
		"cached":                          {"IR-28"},
		"duplicates wait":                 {"IR-29"},
		"409 stored":                      {"IR-30", "IR-32?", "IR-45?"},
		"disconnection stops the request": {"IR-31"},
		"lost responses are forgotten":    {"IR-32"},
		"locked forever":                  {"IR-17", "IR-33"},
		"expired keys are executed":       {"IR-34"},
		"short retention":                 {"IR-35"},
		"no problem documents":            {"IR-38"},
		"wrong verdict of 400":            {"IR-39", "IR-41", "IR-43"},
		"wrong verdict of 409":            {"IR-29", "IR-40"},
		"no Retry-After":                  {"IR-29", "IR-40"},
		"wrong verdict of reuse":          {"IR-41"},
		"no outcome":                      {"IR-42"},
		"preference not named":            {"IR-45"},
		"wait ignored":                    {"IR-46"},
		"no status of finished keys":      {"IR-47"},
		"a 404 with the outcome none":     {"IR-47"},
		"overload stores the key":         {"IR-48"},
		"lookup before authentication":    {"IR-49"},
		"one problem type":                {"IR-51"},
		"lifetime in seconds":             {"IR-35", "IR-52"},
		"declines while interrupted":      {"IR-20"},
		"replay with 200":                 {"IR-24"},
		"replay with the last Location":   {"IR-25"},
		"absent is false":                 {"IR-8"},
		"text is a number":                {"IR-8"},
		"keys cut at a comma":             {"IR-53"},
		"keys decoded":                    {"IR-53"},
		"keys in any case":                {"IR-53"},
		"fingerprint without the version": {"IR-54"},
		"keys of reads are rejected":      {"IR-56"},
		"replays to readers":              {"IR-58"},
		"browsers send no key":            {"IR-59"},
	}
}

func TestRun_faultyServer(t *testing.T) {
	t.Parallel()
	for fault, clauses := range faultyServers() {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			s := newTestSuite(t, newServer(t, fault))
			require.NoError(t, s.preflight(t.Context(), "profile.yaml"))
			r := s.run(t.Context())
			var wanted []string
			failed := states(r, fail)
			for _, id := range clauses {
				id, sometimes := strings.CutSuffix(id, "?")
				if !sometimes || slices.Contains(failed, id) {
					wanted = append(wanted, id)
				}
			}
			require.Equal(t, wanted, failed, r.text())
			requireAnomalies(t, r)
			require.NotContains(t, r.text(), "secret-")
		})
	}
}

// An effect that comes after the dependency is restored belongs to the request that got a
// failure, and to no other.
func TestRun_lateEffect(t *testing.T) {
	t.Parallel()
	s := newTestSuite(t, newServer(t, "declines while interrupted"))
	s.only = []string{"IR-20", "IR-33", "IR-34"}
	require.NoError(t, s.preflight(t.Context(), "profile.yaml"))
	r := s.run(t.Context())
	require.Len(t, r.Anomalies, 1, r.text())
	require.Equal(t, "FAILURE ANSWERED, YET EXECUTED when a dependency fails", r.Anomalies[0].Title)
	require.Regexp(t, "^2 requests, 1 key: 1 (things|mails), expected 0, 1 (things|mails), expected 0; dependency interrupted at ", r.Anomalies[0].Summary)
	require.Contains(t, strings.Join(r.Anomalies[0].Witness, "\n"), "restore")
	require.Empty(t, r.Foreign)
}

// A run that is interrupted, even in the middle of a fault, reports what it has seen and leaves
// the system as it was.
func TestRun_interrupted(t *testing.T) {
	t.Parallel()
	for fault, safety := range map[string]verdict{"": noViolation, "replay has an effect": violated} {
		server := newServer(t, fault)
		s := newTestSuite(t, server)
		s.only = []string{"IR-17", "IR-27", "IR-33", "IR-34"}
		ctx, cancel := context.WithCancel(t.Context())
		kill := s.hooks.kill
		s.hooks.kill = func(ctx context.Context, key string) error {
			cancel()
			return kill(ctx, key)
		}
		require.NoError(t, s.preflight(ctx, "profile.yaml"))
		r := s.run(ctx)
		require.Equal(t, []verdict{safety, noViolation}, []verdict{r.Safety, r.Liveness}, r.text())
		require.Equal(t, "interrupted, during IR-17; not checked: 2 clauses", r.Ended)
		require.Equal(t, []string{"IR-17"}, states(r, skipped))
		require.Contains(t, r.NotExercised, gap{concurrent, endedReason})
		require.Contains(t, r.text(), "! The run ended early: interrupted")
		require.Contains(t, r.text(), "The run ended early, so the level is unknown.")
		require.False(t, server.down)
		want := map[verdict]int{noViolation: exitUsage, violated: exitViolated}[safety]
		require.Equal(t, want, exitStatus(options{}.judgement(r, io.Discard)))
	}
}

// Effects that cannot be counted any more end the run, but the server is not accused of it.
func TestRun_silentEffects(t *testing.T) {
	t.Parallel()
	var silent atomic.Bool
	counter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if silent.Load() {
			<-r.Context().Done()
		}
		_, _ = io.WriteString(w, `{"data":[]}`)
	}))
	t.Cleanup(counter.Close)
	s := newTestSuite(t, newServer(t), "patience: 10s", "patience: 1s",
		"effects:", "effects:\n  - {name: charges, url: '"+counter.URL+"', list: /data, id: /id}")
	_, err := s.account(t.Context())
	require.NoError(t, err)
	silent.Store(true)
	r := s.run(t.Context())
	require.Equal(t, []verdict{noViolation, noViolation}, []verdict{r.Safety, r.Liveness}, r.text())
	require.Contains(t, r.Ended, errSilent.Error())
}

// A server that responds may be blocked for one key only, so the run goes on for longer than with one that is silent.
func TestSuite_inVain(t *testing.T) {
	t.Parallel()
	for status, most := range map[int]int{0: mostSilent, http.StatusServiceUnavailable: mostWaits} {
		s := newTestSuite(t, newServer(t))
		var stopped error
		s.stop = func(cause error) { stopped = cause }
		for range most {
			require.NoError(t, stopped)
			s.stalled.until = time.Time{}
			s.inVain(&exchange{number: 1, status: status}, time.Now().Add(-s.p.Patience), errBlocked)
		}
		require.ErrorIs(t, stopped, errBlocked)
	}
}

// Each check detects a server that violates its clause.
func TestFaultyServers_complete(t *testing.T) {
	t.Parallel()
	detected := slices.Concat(slices.Collect(maps.Values(faultyServers()))...)
	for _, c := range clauses() {
		require.Equal(t, c.level > 0, slices.Contains(detected, c.id), c.id)
		require.Equal(t, c.level > 0, c.check != nil, c.id)
	}
}

// Credentials reach neither a report nor an error, even if the server repeats them.
func TestReport_noCredentials(t *testing.T) {
	t.Parallel()
	s := newTestSuite(t, newServer(t))
	e := s.send(t.Context(), request{keys: []string{"a key with secret-one"}, body: `{"token":"Bearer secret-two"}`})
	var res result
	res.set(fails(shown(e), "secret-uno"))
	s.redactResult(&res)
	for format, write := range formats {
		if format == "baseline" {
			continue // it has only clauses
		}
		var text bytes.Buffer
		require.NoError(t, write(report{Level: 1, Results: []result{res}}, &text))
		require.NotContains(t, text.String(), "secret-", format)
		require.Contains(t, text.String(), "[credential]", format)
	}
}

func TestReport_formats(t *testing.T) {
	t.Parallel()
	r := report{
		Version: version, Level: 2, Reached: 1, Seed: 7, URL: "http://one", Operation: "POST /things", Safety: violated, Liveness: noViolation,
		Requests: 40, Keys: 7, Executions: 6,
		NotExercised: []gap{{expiry, "commands.expire missing"}},
		Exercised:    []covering{{once, "one"}, {crashed, "3 crashes"}},
		Anomalies: []anomaly{{
			Number: 1, Class: safety, Kind: executedTwice, Scenario: concurrent, Clauses: []string{"IR-16"}, Count: 2, Title: "EXECUTED TWICE by concurrent duplicates",
			Summary: "12 requests, 1 key: 12 things, expected 1", Witness: []string{"key 302f"}, Replay: "conformance -clause IR-16", Curl: "curl one", Cause: "no lock",
		}},
		Matrix: []matrixRow{{"things", map[scenario]string{once: "ok", concurrent: "12/1"}}},
		Results: []result{
			{Clause: "IR-1", Level: 1, Class: form, Keyword: must, Title: "One", State: pass, Covered: "two keys"},
			{Clause: "IR-5", Level: 1, Class: form, Keyword: should, Title: "Five", State: fail, Message: "not repeated"},
			{Clause: "IR-13", Level: 2, Class: form, Keyword: must, Title: "Thirteen", State: fail, Message: "409 instead of 422", Cause: "reused: 409 instead of 422", Exchanges: [][]string{{"> POST /things", "< 409"}}},
			{Clause: "IR-18", Class: safety, Keyword: must, Title: "Eighteen", State: skipped, Message: "not observable from outside"},
		},
	}
	text := r.text()
	for _, part := range []string{
		"conformance 0.2 · http://one · POST /things · seed 7 · 0 s · 40 requests, 7 keys, 6 executions\n\nSAFETY    UNSAFE: 1 anomaly (exit 1)\nLIVENESS  no violation found (3 crashes)",
		"FORM      profile 0.2: 1 MUST differ (counts only with -strict)\n\n! EXPIRY not exercised: commands.expire missing\n",
		"\n1 EXECUTED TWICE by concurrent duplicates   IR-16   (seen 2 times)\n  12 requests, 1 key: 12 things, expected 1\n    key 302f\n  replay: conformance -clause IR-16\n  cause:  usually no lock\n  by hand, in sh (other keys for each try):\n    curl one\n",
		"\nthings  ok      -       -       12/1 ",
		"  reused: 409 instead of 422: IR-13\n",
		"IR-13  2  form      MUST    fail           Thirteen\n       409 instead of 422\n       spec/idempotent-requests.md#ir-13\n         > POST /things\n         < 409\n",
		"1 pass, 1 MUST and 1 SHOULD or MAY fail, 0 not exercised, 1 not observable. Seed 7.\nThe server conforms at level 1.\n",
	} {
		require.Contains(t, text, part)
	}

	var junit, object, html bytes.Buffer
	require.NoError(t, r.writeJUnit(&junit))
	var suites junitSuites
	require.NoError(t, xml.Unmarshal(junit.Bytes(), &suites))
	require.Equal(t, []string{"safety", "liveness", "clauses"}, []string{suites.Suites[0].Name, suites.Suites[1].Name, suites.Suites[2].Name})
	require.Equal(t, []int{1, 0, 0}, []int{suites.Suites[0].Failures, suites.Suites[1].Failures, suites.Suites[2].Failures}, "form makes no build red")
	require.Equal(t, 1, suites.Suites[0].Skipped)
	require.Equal(t, "fail: 409 instead of 422", suites.Suites[2].Cases[2].Skipped.Message)

	require.NoError(t, r.writeJSON(&object))
	var decoded report
	require.NoError(t, json.Unmarshal(object.Bytes(), &decoded))
	require.Equal(t, r, decoded)

	require.NoError(t, r.writeHTML(&html))
	require.Contains(t, html.String(), "EXECUTED TWICE by concurrent duplicates")
	require.Contains(t, html.String(), `<td class="fail">12/1</td>`)

	r.Results = append(r.Results, result{Clause: "IR-19", Level: 2, Class: safety, Keyword: must, State: fail, Message: "the failure is not stored"})
	require.Contains(t, r.text(), "SAFETY    UNSAFE: 1 anomaly (exit 1); clauses differ, too: IR-19\n")
	r.Safety, r.Anomalies, r.Dialect = clausesDiffer, nil, "400, no retry member"
	require.Contains(t, r.text(), "SAFETY    CLAUSES DIFFER: IR-19 (exit 5); no other violation found (one, 3 crashes; not exercised: expiry)\n")
	require.Equal(t, 1, r.junitForm().Failures)
	r.Safety = noViolation
	r.Results = r.Results[:2]
	uncovered := r
	uncovered.Uncovered = []string{"a second process (urls)"}
	require.Contains(t, uncovered.text(), "SAFETY no violation found (one, 3 crashes; not exercised: expiry; not covered: a second process (urls)) · ")
	first, _, _ := strings.Cut(r.text(), "\n")
	require.Equal(t, `SAFETY no violation found (one, 3 crashes; not exercised: expiry) · FORM dialect "400, no retry member"`, first)
}

// The exit status separates a violation of safety from a difference of form and from a check
// that was not exercised.
func TestJudgement(t *testing.T) {
	t.Parallel()
	safe := report{Safety: noViolation, Liveness: noViolation, NotExercised: []gap{{expiry, "commands.expire missing"}}}
	differs := safe
	differs.Results = []result{{Clause: "IR-1", Class: form, Keyword: must, State: fail}}
	broken := safe
	broken.Safety = clausesDiffer
	broken.Results = []result{{Clause: "IR-19", Class: safety, Keyword: must, State: fail}}
	unsafe := safe
	unsafe.Safety = violated
	unsafe.Anomalies = []anomaly{{Class: safety, Clauses: []string{"IR-16"}}}
	blocks := safe
	blocks.Liveness = violated
	busy := safe
	busy.Safety = notJudged
	ended := differs
	ended.Ended = "interrupted"
	folder := t.TempDir()
	baseline := func(lines string) string {
		file, err := os.CreateTemp(folder, "")
		require.NoError(t, err)
		_, err = file.WriteString(lines)
		require.NoError(t, errors.Join(err, file.Close()))
		return file.Name()
	}
	for name, one := range map[string]struct {
		options
		report
		status int
	}{
		"safe":                         {options{}, safe, exitSafe},
		"another form":                 {options{}, differs, exitSafe},
		"another form, strict":         {options{strict: true}, differs, exitForm},
		"a clause of safety":           {options{strict: true}, broken, exitDiffers},
		"one that is known":            {options{baseline: baseline("safety IR-19\n")}, broken, exitSafe},
		"one that is not":              {options{baseline: baseline("")}, broken, exitDiffers},
		"unsafe":                       {options{strict: true, required: []scenario{"all"}}, unsafe, exitViolated},
		"blocks":                       {options{}, blocks, exitViolated},
		"other traffic":                {options{}, busy, exitUsage},
		"interrupted":                  {options{}, ended, exitUsage},
		"interrupted, with a baseline": {options{baseline: baseline("")}, ended, exitUsage},
		"required":                     {options{required: []scenario{concurrent, expiry}}, safe, exitNotExercised},
		"required and exercised":       {options{required: []scenario{concurrent}}, safe, exitSafe},
		"all required":                 {options{required: []scenario{"all"}}, safe, exitNotExercised},
		"known":                        {options{baseline: baseline("# one\nform IR-1 # known\n")}, differs, exitSafe},
		"a failure that is not known":  {options{baseline: baseline("")}, differs, exitForm},
		"a violation that is known":    {options{baseline: baseline("safety IR-16\n")}, unsafe, exitSafe},
		"a violation that is not":      {options{baseline: baseline("form IR-16\n")}, unsafe, exitViolated},
		"a known failure that passes":  {options{baseline: baseline("form IR-1\nsafety IR-1\n")}, differs, exitForm},
		"a known one, not exercised":   {options{baseline: baseline("form IR-1\nform IR-2\n")}, differs, exitSafe},
		"a baseline that is not there": {options{baseline: filepath.Join(folder, "none")}, safe, exitUsage},
	} {
		require.Equal(t, one.status, exitStatus(one.judgement(one.report, io.Discard)), name)
	}
}

func TestParseProfile_valid(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("profiles", "orders.yaml"))
	require.NoError(t, err)
	p, err := parseProfile(text, func(string) (string, bool) { return "http://127.0.0.1:1", true })
	require.NoError(t, err)
	require.Equal(t, []time.Duration{6 * time.Second, 6 * time.Second}, []time.Duration{p.takeover(), p.continued()})
	// A server without locks has no takeover to document.
	p, err = parseProfile(bytes.ReplaceAll(text, []byte("takeover: 6s"), nil), func(string) (string, bool) { return "http://127.0.0.1:1", true })
	require.NoError(t, err)
	require.Equal(t, []time.Duration{5 * time.Second, 30 * time.Second}, []time.Duration{p.takeover(), p.continued()})
}

func TestParseProfile_everyFault(t *testing.T) {
	t.Parallel()
	_, err := parseProfile([]byte(`
url: ftp://example.com
colour: blue
account: {Authorization: "Bearer ${MISSING}", "Bad Name": x}
dialect: {reused: 201, verdict: some}
operation:
  method: GET
  path: things?x=1
  status: 404
  body: same
  changed: same
second_operation: {method: POST, path: things}
slow: {lasts: soon}
effects:
  - {url: /things, number: /n, list: /l, id: id}
status: {path: /keys}
preferences: [return=minimal]
patience: 0s
urls: [nowhere]
commands: {kill: "true", interrupt: "true", pause: "true", kill_store: "true"}
`), environment())
	require.Error(t, err)
	for _, fault := range []string{
		"line 3: unknown member colour", "line 13: `soon` is not a duration, such as 500ms", "dialect.reused must be a status from 400 to 499", "dialect.verdict can only be none", "url must be an http or https URL",
		"account.Authorization: the environment variable MISSING is not set", "account.Bad Name is not a valid header field",
		"operation.path must begin with /", "operation.method must be a method with an effect",
		"operation.status must be", "operation.id must have either a pointer or a header", "operation.invalid is required",
		"body, changed, invalid and declined must differ", "second_operation.path must begin with /",
		"slow.body is required", "effects[0].name is required", "effects[0] must have either number or list",
		`effects[0].id: "id" is not a JSON pointer`, "status.path must begin with / and contain {key}",
		`unknown preference "return=minimal"`, "patience must be positive", "kill and start belong together",
		"interrupt and restore belong together", "pause and resume belong together", "kill_store and start_store belong together",
		"urls[0] must be an http or https URL",
	} {
		require.ErrorContains(t, err, fault)
	}
	require.NotContains(t, err.Error(), "main.")
	require.NotContains(t, err.Error(), "unmarshal")
}

// One cause is one fault.
func TestParseProfile_variable(t *testing.T) {
	t.Parallel()
	text := "url: ${MISSING}\naccount: {Authorization: \"Bearer ${NONE}\"}\noperation: {method: POST, path: /things, status: 201, id: {pointer: /id}, body: a, changed: b, invalid: c}\n" +
		"effects: [{name: things, url: /things, number: /n}]\n"
	_, err := parseProfile([]byte(text), environment())
	require.EqualError(t, err, "url: the environment variable MISSING is not set\naccount.Authorization: the environment variable NONE is not set")
}

func TestReport_gaps(t *testing.T) {
	t.Parallel()
	r := report{NotExercised: []gap{{repeated, unselectedReason}, {expiry, "commands.expire missing"}, {concurrent, unselectedReason}}, Omitted: quickOmits}
	require.Contains(t, r.text(), "! EXPIRY not exercised: commands.expire missing\n! REPEAT, RACE not exercised: no selected clause does it\n! -quick leaves out form")
}

func TestVariants(t *testing.T) {
	t.Parallel()
	body := `{"b":[1,{"c":"x"}],"a":true}`
	require.Equal(t, []variant{
		{"/b/0", `{"b":[2,{"c":"x"}],"a":true}`},
		{"/b/1/c", `{"b":[1,{"c":"xx"}],"a":true}`},
		{"/a", `{"b":[1,{"c":"x"}],"a":false}`},
	}, changedValues(body))
	require.Equal(t, []variant{
		{"/b/0 as another type", `{"b":["1",{"c":"x"}],"a":true}`},
		{"/a as another type", `{"b":[1,{"c":"x"}],"a":"true"}`},
	}, retypedValues(body))
	require.Equal(t, []variant{{"/n as another type", `{ "n" : 5 }`}}, retypedValues(`{ "n" : "5" }`))
	require.Equal(t, []variant{
		{"/a is absent", `{"b":[1,{"c":"x"}]}`},
		{"/b is absent", `{"a":true}`},
		{"/b/1/c is absent", `{"a":true,"b":[1,{}]}`},
	}, removedMembers(body))
	require.Equal(t, []comparison{{"the order of a list", `{"a":true,"b":[1,{"c":"x"}]}`, []variant{
		{"/b in another order", `{"a":true,"b":[{"c":"x"},1]}`},
		{"/b/1", `{"a":true,"b":[1,{"c":"xx"}]}`},
	}}}, reordered(body))
	require.Equal(t, []comparison{{"the order of a list", `{"l":[{"n":1,"s":"x"},{"n":2,"s":"x"}]}`, []variant{
		{"/l in another order", `{"l":[{"n":2,"s":"x"},{"n":1,"s":"x"}]}`},
		{"/l/1", `{"l":[{"n":1,"s":"x"},{"n":3,"s":"x"}]}`},
	}}}, reordered(`{"l":[{"s":"x","n":1}]}`))
	require.Equal(t, []comparison{{"/a is false", `{"a":false,"b":[1,{"c":"x"}]}`, []variant{
		{"/a is absent instead of false", `{"b":[1,{"c":"x"}]}`},
	}}}, omitted(body))
	require.Empty(t, reordered(`{"l":[[]]}`))
	require.Empty(t, append(changedValues("amount=1"), removedMembers("amount=1")...))
	require.Len(t, changedValues(`[`+strings.Repeat("1,", 100)+`2]`), maxVariants)
	for _, v := range serialisations(body) {
		require.NotEqual(t, body, v.body)
		require.JSONEq(t, body, v.body)
	}
	require.Len(t, serialisations(body), 3)
	require.Equal(t, []variant{
		{"a duplicate member", `{"b":[1,{"c":"x"}],"b":[1,{"c":"x"}],"a":true}`},
		{"trailing data", body + " {}"},
		{"invalid UTF-8", `{"b":[1,{"c":"x` + "\xff" + `"}],"a":true}`},
		{"digits that a double does not keep", `{"b":[1.0000000000000000001,{"c":"x"}],"a":true}`},
	}, ambiguous(body))
	require.Empty(t, ambiguous("amount=1"))
}

// The command runs the hooks in a shell, shows its findings first and writes each report. A
// history is judged offline with the same result.
func TestRun_command(t *testing.T) {
	t.Parallel()
	for fault, wanted := range map[string]int{"": exitSafe, "replay not marked": exitSafe, "replay has an effect": exitViolated} {
		folder := t.TempDir()
		in := func(name string) string { return filepath.Join(folder, name) }
		s := newServer(t, fault)
		text := testProfile + "commands: {expire: 'echo \"$IDEMPOTENCY_KEY\" >" + in("key") + "'}\n"
		require.NoError(t, os.WriteFile(in("profile.yaml"), []byte(text), 0o600))
		command := func(args ...string) (int, string) {
			var stdout, stderr bytes.Buffer
			err := run(t.Context(), args, environment("SERVER", s.url, "SECRET", "secret-one"), &stdout, &stderr)
			require.NotContains(t, stdout.String()+stderr.String(), "secret-")
			return exitStatus(err), fmt.Sprint(stdout.String(), err)
		}
		status, output := command("-profile", in("profile.yaml"), "-clause", "IR-24,IR-26,IR-27,IR-34", "-history", in("history"),
			"-report", "json="+in("report.json"), "-report", "html="+in("report.html"), "-report", "baseline="+in("baseline"))
		require.Equal(t, wanted, status, output)
		written, err := os.ReadFile(in("report.json"))
		require.NoError(t, err)
		var r report
		require.NoError(t, json.Unmarshal(written, &r))
		require.Contains(t, states(r, skipped), "IR-34", "the command expires nothing")
		key, err := os.ReadFile(in("key"))
		require.NoError(t, err)
		require.Len(t, strings.TrimSpace(string(key)), 32)
		history, err := os.ReadFile(in("history"))
		require.NoError(t, err)
		require.NotContains(t, string(history)+string(written), "secret-")

		status, again := command("-judge", in("history"), "-report", "json="+in("again.json"))
		require.Equal(t, wanted, status, again)
		rewritten, err := os.ReadFile(in("again.json"))
		require.NoError(t, err)
		require.JSONEq(t, string(written), string(rewritten))

		status, output = command("-judge", in("history"), "-baseline", in("baseline"))
		require.Equal(t, exitSafe, status, output)

		status, output = command("-profile", in("profile.yaml"), "-recheck", in("history"))
		require.Equal(t, exitSafe, status, output)
	}
}

// A key whose lifetime is longer than the run is found later.
func TestRun_recheck(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file, history := filepath.Join(folder, "profile.yaml"), filepath.Join(folder, "history")
	require.NoError(t, os.WriteFile(file, []byte(testProfile), 0o600))
	s := newServer(t, "expired keys are executed")
	command := func(args ...string) (int, string) {
		var stdout bytes.Buffer
		err := run(t.Context(), append([]string{"-profile", file}, args...), environment("SERVER", s.url, "SECRET", "secret-one"), &stdout, io.Discard)
		return exitStatus(err), fmt.Sprint(stdout.String(), err)
	}
	status, output := command("-clause", "IR-27,IR-35", "-history", history)
	require.Equal(t, exitSafe, status, output)
	require.Contains(t, output, "! EXPIRY not exercised: commands.expire missing")
	require.NoError(t, s.hooks().expire(t.Context(), ""))
	status, output = command("-recheck", history)
	require.Equal(t, exitViolated, status, output)
	require.Contains(t, output, "EXECUTED TWICE when an older key is used again   IR-35")
}

// Each address is tried before the checks, because a dead one looks like a lock without an end.
func TestPreflight_deadAddress(t *testing.T) {
	t.Parallel()
	s := newTestSuite(t, newServer(t), "takeover: 1s", "takeover: 1s\nurls: ['http://"+freeAddress(t)+"']")
	require.ErrorContains(t, s.preflight(t.Context(), "profile.yaml"), "urls[0] is dead: http://127.0.0.1:")
}

// The help and README.md have all exit statuses.
func TestRun_help(t *testing.T) {
	t.Parallel()
	var help bytes.Buffer
	require.ErrorIs(t, run(t.Context(), []string{"-help"}, environment(), io.Discard, &help), flag.ErrHelp)
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for status, meaning := range exitMeanings() {
		require.Contains(t, help.String(), fmt.Sprintf("  %d  %s\n", status, meaning))
		require.Contains(t, strings.ReplaceAll(string(page), "`", ""), fmt.Sprintf("| %d | %s |\n", status, meaning))
	}
}

func TestRun_wrongUsage(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), []string{"-level", "6", "-clause", "IR-1,IR-99", "-require", "all,love", "more"}, environment(), io.Discard, io.Discard)
	for _, fault := range []string{"-profile or -judge is required", "-level must be", `unknown scenario "love"`, `unknown clause "IR-99"`, `unknown argument "more"`} {
		require.ErrorContains(t, err, fault)
	}
	err = run(t.Context(), []string{"-judge", "history", "-profile", "file"}, environment(), io.Discard, io.Discard)
	require.ErrorContains(t, err, "not both -profile and -judge")
	err = run(t.Context(), []string{"-judge", "history", "-against", "draft"}, environment(), io.Discard, io.Discard)
	require.ErrorContains(t, err, "-recheck need -profile")
	_, err = newTestSuite(t, newServer(t), "path: /things", "path: /nothing").execute(t.Context(), newKey(), "{}")
	require.ErrorContains(t, err, "a valid request got 404 instead of 201")
}

func TestClauses_profile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "clauses.yaml"))
	require.NoError(t, err)
	var list []struct {
		ID      string
		Level   int
		Class   string
		Keyword string
		Title   string
	}
	require.NoError(t, yaml.Unmarshal(text, &list))
	table := clauses()
	require.Len(t, table, len(list))
	for i, c := range list {
		require.Equal(t, []any{c.ID, c.Level, c.Keyword, c.Title}, []any{table[i].id, table[i].level, table[i].keyword, table[i].title})
	}
}
