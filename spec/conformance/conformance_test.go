package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// Most of the time, a test waits for slow requests.
func TestMain(m *testing.M) {
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
	require.NoError(t, s.probe(t.Context()))
	r := s.run(t.Context(), nil)
	require.Empty(t, states(r, fail), r.text())
	require.Empty(t, states(r, skipped), r.text())
	require.Len(t, r.Results, len(clauses()))
	require.Equal(t, highestLevel, r.reached())
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
		"no check in progress":            {"IR-13"},
		"validates first":                 {"IR-14"},
		"rejected requests use keys":      {"IR-15"},
		"checks, then stores":             {"IR-16", "IR-43?"},
		"effect before its record":        {"IR-17"},
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
		"overload stores the key":         {"IR-48"},
		"lookup before authentication":    {"IR-49"},
		"one problem type":                {"IR-51"},
		"lifetime in seconds":             {"IR-35", "IR-52"},
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
			require.NoError(t, s.probe(t.Context()))
			r := s.run(t.Context(), nil)
			var wanted []string
			failed := states(r, fail)
			for _, id := range clauses {
				id, sometimes := strings.CutSuffix(id, "?")
				if !sometimes || slices.Contains(failed, id) {
					wanted = append(wanted, id)
				}
			}
			require.Equal(t, wanted, failed, r.text())
			require.NotContains(t, r.text(), "secret-")
		})
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
	for _, format := range []string{"text", "junit", "json"} {
		var text bytes.Buffer
		require.NoError(t, report{Level: 1, Results: []result{res}}.write(format, &text))
		require.NotContains(t, text.String(), "secret-", format)
		require.Contains(t, text.String(), "[credential]", format)
	}
}

func TestReport_formats(t *testing.T) {
	t.Parallel()
	r := report{Level: 2, Seed: 7, Results: []result{
		{Clause: "IR-1", Level: 1, Keyword: must, Title: "One", State: pass},
		{Clause: "IR-5", Level: 1, Keyword: should, Title: "Five", State: fail, Message: "not repeated"},
		{Clause: "IR-13", Level: 2, Keyword: must, Title: "Thirteen", State: fail, Message: "201 instead of 422", Exchanges: [][]string{{"> POST /things", "< 201"}}},
		{Clause: "IR-18", Keyword: must, Title: "Eighteen", State: skipped, Message: "not observable from outside"},
	}}
	require.True(t, r.failed())
	var text, junit, object bytes.Buffer
	require.NoError(t, r.write("text", &text))
	require.Contains(t, text.String(), "IR-13  2  MUST    fail         Thirteen\n       201 instead of 422\n         > POST /things\n         < 201\n")
	require.Contains(t, text.String(), "1 pass, 1 MUST and 1 SHOULD or MAY fail, 0 not checked, 1 not observable. Seed 7.\nThe server conforms at level 1.\n")

	require.NoError(t, r.write("junit", &junit))
	var suites junitSuites
	require.NoError(t, xml.Unmarshal(junit.Bytes(), &suites))
	require.Equal(t, []int{4, 1, 2}, []int{suites.Suites[0].Tests, suites.Suites[0].Failures, suites.Suites[0].Skipped})
	require.Equal(t, "201 instead of 422", suites.Suites[0].Cases[2].Failure.Message)

	require.NoError(t, r.write("json", &object))
	var decoded report
	require.NoError(t, json.Unmarshal(object.Bytes(), &decoded))
	require.Equal(t, 1, decoded.Reached)
	require.Equal(t, r.Results, decoded.Results)

	r.Results = r.Results[:2]
	require.False(t, r.failed(), "a SHOULD clause does not count")
}

func TestParseProfile_valid(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("profiles", "orders.yaml"))
	require.NoError(t, err)
	_, err = parseProfile(text, func(string) (string, bool) { return "http://127.0.0.1:1", true })
	require.NoError(t, err)
}

func TestParseProfile_everyFault(t *testing.T) {
	t.Parallel()
	_, err := parseProfile([]byte(`
url: ftp://example.com
colour: blue
account: {Authorization: "Bearer ${MISSING}", "Bad Name": x}
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
commands: {kill: "true", interrupt: "true"}
`), environment())
	require.Error(t, err)
	for _, fault := range []string{
		"field colour not found", "into time.Duration", "url must be an http or https URL",
		"account.Authorization: the environment variable MISSING is not set", "account.Bad Name is not a valid header field",
		"operation.path must begin with /", "operation.method must be a method with an effect",
		"operation.status must be", "operation.id must have either a pointer or a header", "operation.invalid is required",
		"body, changed, invalid and declined must differ", "second_operation.path must begin with /",
		"slow.body is required", "effects[0].name is required", "effects[0] must have either number or list",
		`effects[0].id: "id" is not a JSON pointer`, "status.path must begin with / and contain {key}",
		`unknown preference "return=minimal"`, "patience must be positive", "kill and start belong together",
		"interrupt and restore belong together", "takeover is required",
	} {
		require.ErrorContains(t, err, fault)
	}
}

func TestVariants(t *testing.T) {
	t.Parallel()
	body := `{"b":[1,{"c":"x"}],"a":true}`
	require.Equal(t, []variant{
		{"/a", `{"a":false,"b":[1,{"c":"x"}]}`},
		{"/b/0", `{"a":true,"b":[2,{"c":"x"}]}`},
		{"/b/1/c", `{"a":true,"b":[1,{"c":"xx"}]}`},
	}, changedValues(body))
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

// The command runs the hooks in a shell and returns an error only if a MUST clause fails.
func TestRun_command(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for fault, wanted := range map[string]error{"": nil, "cached": nil, "replay not marked": errNonconforming} {
		s := newServer(t, fault)
		file := filepath.Join(folder, "profile.yaml")
		text := testProfile + "commands: {expire: 'echo \"$IDEMPOTENCY_KEY\" >" + filepath.Join(folder, "key") + "'}\n"
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		output := filepath.Join(folder, "report.json")
		var stdout, stderr bytes.Buffer
		err := run(t.Context(), []string{"-profile", file, "-clause", "IR-24,IR-26,IR-28,IR-34", "-format", "json", "-output", output},
			environment("SERVER", s.url, "SECRET", "secret-one"), &stdout, &stderr)
		require.Equal(t, wanted, err, "%s%s", &stdout, &stderr)
		written, err := os.ReadFile(output)
		require.NoError(t, err)
		var r report
		require.NoError(t, json.Unmarshal(written, &r))
		require.Equal(t, []string{"IR-34"}, states(r, skipped), "the command expires nothing")
		key, err := os.ReadFile(filepath.Join(folder, "key"))
		require.NoError(t, err)
		require.Len(t, strings.TrimSpace(string(key)), 32)
		require.NotContains(t, stdout.String()+stderr.String()+string(written), "secret-")
	}
}

func TestRun_wrongUsage(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), []string{"-level", "6", "-format", "tap", "-clause", "IR-1,IR-99", "more"}, environment(), io.Discard, io.Discard)
	for _, fault := range []string{"-profile is required", "-level must be", "-format must be", `unknown clause "IR-99"`, `unknown argument "more"`} {
		require.ErrorContains(t, err, fault)
	}
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
