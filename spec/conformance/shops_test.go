package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shopSystem is a running shop with its store and its provider.
type shopSystem struct {
	folder  string
	profile string // the profile file
	charges func() int
}

// newShopSystem starts a shop. Its replicas share one store.
func newShopSystem(t *testing.T, f flaws, replicas int) shopSystem {
	t.Helper()
	folder := t.TempDir()
	pays := &provider{interrupted: filepath.Join(folder, "interrupted"), charges: []charge{}}
	listening := httptest.NewServer(pays)
	t.Cleanup(listening.Close)
	c := processConfig{Folder: folder, Address: freeAddress(t), Provider: listening.URL, Flaws: f}
	c.Store = "http://" + c.Address
	storing := newProcess(t, folder, "store", "store", c)
	reachable(t, c.Address)
	var addresses []string
	var first process
	for i := range replicas {
		c.Address = freeAddress(t)
		addresses = append(addresses, "http://"+c.Address)
		p := newProcess(t, folder, fmt.Sprint("shop", i), "shop", c)
		reachable(t, c.Address)
		if i == 0 {
			first = p
		}
	}
	s := shopSystem{folder: folder, profile: filepath.Join(folder, "profile.yaml"), charges: pays.count}
	text := strings.NewReplacer(
		"@URL", addresses[0], "@PROVIDER", listening.URL, "@FOLDER", folder,
		"@KILL_STORE", storing.signal("KILL"), "@START_STORE", storing.start,
		"@KILL", first.signal("KILL"), "@START", first.start,
		"@PAUSE", first.signal("STOP"), "@RESUME", first.signal("CONT"),
	).Replace(shopProfile)
	if replicas > 1 {
		text += "urls: [" + strings.Join(addresses[1:], ", ") + "]\n"
	}
	require.NoError(t, os.WriteFile(s.profile, []byte(text), 0o600))
	return s
}

const shopProfile = `
url: @URL
account: {Authorization: "Bearer ${SHOP_KEY}"}
second_credential: {Authorization: Bearer secret-uno}
second_account: {Authorization: Bearer secret-two}
key_header: X-Idempotency-Key
replay_header: ''
operation:
  method: POST
  path: /orders
  headers: {Content-Type: application/json}
  status: 201
  id: {pointer: /id}
  body: '{"amount":2500,"card":"visa","items":[{"sku":"tea","quantity":2}]}'
  changed: '{"amount":3750,"card":"visa","items":[{"sku":"tea","quantity":3}]}'
  invalid: '{"amount":0,"card":"visa","items":[{"sku":"tea","quantity":2}]}'
  declined: '{"amount":2500,"card":"declined","items":[{"sku":"tea","quantity":2}]}'
slow:
  lasts: 400ms
  body: '{"amount":2500,"card":"slow","items":[{"sku":"tea","quantity":2}]}'
effects:
  - {name: charges, url: "@PROVIDER/charges", list: /data, id: /id}
  - {name: orders, url: /orders, list: /data, id: /id}
takeover: 2s
patience: 10s
crashes: 4
dialect: {reused: 400, expired: 400, verdict: none}
commands:
  kill: @KILL
  start: @START
  pause: @PAUSE
  resume: @RESUME
  kill_store: @KILL_STORE
  start_store: @START_STORE
  interrupt: touch @FOLDER/interrupted
  restore: rm @FOLDER/interrupted
  expire: echo "$IDEMPOTENCY_KEY" >>@FOLDER/expired
`

// verdict runs the command as a user does. It returns its exit status and its report.
func (s shopSystem) verdict(t *testing.T, args ...string) (int, report) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	var stdout, stderr bytes.Buffer
	args = append([]string{"-profile", s.profile, "-report", "json=" + file}, args...)
	err := run(t.Context(), args, environment("SHOP_KEY", "secret-one"), &stdout, &stderr)
	written, unread := os.ReadFile(file)
	require.NoError(t, unread, "%v\n%s\n%s", err, &stdout, &stderr)
	var r report
	require.NoError(t, json.Unmarshal(written, &r))
	requireAnomalies(t, r)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%v\n%s", err, &stdout)
		}
	})
	return exitStatus(err), r
}

var excess = regexp.MustCompile(`effects "\w+": (\d+) instead of (\d+)`)

// requireAnomalies requires that no clause of safety hides executions in excess in its message.
func requireAnomalies(t *testing.T, r report) {
	t.Helper()
	for _, res := range r.Results {
		found := excess.FindStringSubmatch(res.Message)
		if found == nil || res.Class == form || len(found[1]) == len(found[2]) && found[1] <= found[2] {
			continue
		}
		require.True(t, slices.ContainsFunc(r.Anomalies, func(a anomaly) bool { return a.Class == safety && slices.Contains(a.Clauses, res.Clause) }),
			"%s: %s", res.Clause, found[0])
	}
}

// shopCase is a shop and what the command must report first.
type shopCase struct {
	flaws    flaws
	replicas int
	without  string // a member of commands that the profile file lacks
	kinds    []kind
	among    []scenario
	also     scenario   // of another anomaly
	never    []scenario // without an anomaly, because the shop is safe there
}

// Each case has a process of its own kind. The first five are what shops have; the others
// have one planted defect each.
func shopCases() map[string]shopCase {
	twice := []kind{executedTwice}
	return map[string]shopCase{
		"safe, in another form": {},
		"memory cache":          {flaws: flaws{Memory: true, ChargePerRun: true}, kinds: twice, among: []scenario{concurrent}},
		// A request without a final response does not hide the second effects of others.
		"memory cache that throws": {flaws: flaws{Memory: true, Throws: true, ChargePerRun: true}, kinds: twice, among: []scenario{concurrent}, also: cutOff},
		// The moments of faults are random, so five crashes may all miss the charge.
		"lock with a lifetime":          {flaws: flaws{ChargePerRun: true, Forgets: true}, kinds: twice, among: []scenario{crashed, paused, storeLost}, never: []scenario{repeated, differing, concurrent}},
		"lock released before the work": {flaws: flaws{ChargePerRun: true, ReleasedAtOnce: true}, kinds: twice, among: []scenario{concurrent}},
		"charges and answers 400": {
			flaws: flaws{ChargePerRun: true, ChargesAnyway: true}, kinds: []kind{executedTwice, failedYetDone}, among: []scenario{differing},
			never: []scenario{repeated},
		},

		"no lock":                       {flaws: flaws{ChargePerRun: true, NoLock: true}, kinds: twice, among: []scenario{concurrent}},
		"lock released before the end":  {flaws: flaws{ChargePerRun: true, ReleasedEarly: true}, kinds: twice, among: []scenario{concurrent}},
		"nested members ignored":        {flaws: flaws{NestedIgnored: true}, kinds: []kind{wrongResponse}, among: []scenario{differing}},
		"500 stored":                    {flaws: flaws{FailureStored: true}, kinds: []kind{failedYetDone, blocked}, among: []scenario{outage}},
		"lifetime of 3 s":               {flaws: flaws{Lifetime: 3 * time.Second}, without: "expire", kinds: twice, among: []scenario{crashed, paused, storeLost, later}, also: later},
		"lock shorter than the request": {flaws: flaws{ChargePerRun: true, Claim: 100 * time.Millisecond}, kinds: twice, among: []scenario{concurrent}},
		"keys without their account":    {flaws: flaws{AccountIgnored: true}, kinds: []kind{otherTenant}, among: []scenario{once, repeated}},
		"blocked after a crash":         {flaws: flaws{NeverContinued: true}, kinds: []kind{blocked}, among: []scenario{crashed}},

		"safe, at two addresses":             {replicas: 2},
		"lock in the process":                {flaws: flaws{ChargePerRun: true, ProcessLock: true}, replicas: 2, kinds: twice, among: []scenario{replicated}, never: []scenario{concurrent}},
		"looks for the charge, then charges": {flaws: flaws{LooksFirst: true}, kinds: twice, among: []scenario{paused}, never: []scenario{concurrent, crashed}},
		"the same, at two addresses":         {flaws: flaws{LooksFirst: true}, replicas: 2, kinds: twice, among: []scenario{paused}, never: []scenario{concurrent, crashed}},
		"executes without its store":         {flaws: flaws{FailsOpen: true}, kinds: twice, among: []scenario{storeLost}, never: []scenario{crashed, paused}},
		"store in memory":                    {flaws: flaws{Volatile: true}, kinds: twice, among: []scenario{storeLost}, never: []scenario{crashed, paused}},
		"rejects without its store":          {flaws: flaws{RejectsOnOutage: true}, kinds: []kind{failedYetDone}, among: []scenario{storeLost}, never: []scenario{crashed}},
	}
}

var runs = flag.Int("runs", 1, "how often TestShops_safe runs each safe shop")

// TestShops_safe looks for false alarms. All runs are load for each other.
func TestShops_safe(t *testing.T) {
	t.Parallel()
	for name, c := range shopCases() {
		if c.among != nil {
			continue
		}
		for i := range *runs {
			t.Run(fmt.Sprint(name, " ", i+1), func(t *testing.T) {
				t.Parallel()
				status, r := newShopSystem(t, c.flaws, max(1, c.replicas)).verdict(t)
				require.Empty(t, r.Anomalies)
				require.Equal(t, exitSafe, status)
				require.Equal(t, noViolation, r.Safety)
				require.Equal(t, noViolation, r.Liveness)
			})
		}
	}
}

func TestShops_unsafe(t *testing.T) {
	t.Parallel()
	for name, c := range shopCases() {
		if c.among == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShopSystem(t, c.flaws, max(1, c.replicas))
			if c.without != "" {
				s.remove(t, c.without)
			}
			status, r := s.verdict(t)
			require.Equal(t, exitViolated, status)
			require.NotEmpty(t, r.Anomalies)
			first := r.Anomalies[0]
			require.Contains(t, c.among, first.Scenario)
			require.Contains(t, c.kinds, first.Kind)
			if c.also != "" {
				require.True(t, slices.ContainsFunc(r.Anomalies, func(a anomaly) bool { return a.Scenario == c.also }))
			}
			for _, a := range r.Anomalies {
				require.NotContains(t, c.never, a.Scenario, a.Title)
			}
		})
	}
}

// remove deletes a command from the profile file.
func (s shopSystem) remove(t *testing.T, command string) {
	t.Helper()
	text, err := os.ReadFile(s.profile)
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^  ` + command + `: .*\n`)
	require.NoError(t, os.WriteFile(s.profile, line.ReplaceAll(text, nil), 0o600))
}

// A lifetime that is longer than the run cannot show in it. The report says so, and -recheck
// finds it later.
func TestShops_lifetimeOfAMinute(t *testing.T) {
	t.Parallel()
	s := newShopSystem(t, flaws{Lifetime: time.Minute}, 1)
	s.remove(t, "expire")
	history := filepath.Join(s.folder, "history")
	_, r := s.verdict(t, "-level", "2", "-history", history)
	require.Contains(t, r.NotExercised, gap{expiry, "commands.expire missing"})
	if r.Safety == noViolation { // otherwise the run lasted longer than a minute
		require.True(t, slices.ContainsFunc(r.Exercised, func(c covering) bool {
			return c.Scenario == later && strings.HasSuffix(c.Text, " old")
		}), "the age of the oldest key")
	}
	require.Eventually(t, func() bool {
		status, r := s.verdict(t, "-recheck", history)
		return status == exitViolated && r.Anomalies[0].Kind == executedTwice && r.Anomalies[0].Scenario == later
	}, 5*time.Minute, 10*time.Second)
}

// The lines of an anomaly show it again, if they are run in sh.
func TestShops_byHand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flaws   flaws
		clauses string
		shows   []scenario
	}{
		"memory cache":               {flaws{Memory: true, ChargePerRun: true}, "IR-8,IR-16,IR-17,IR-32", []scenario{differing, concurrent, cutOff, crashed, paused, later}},
		"charges and answers 400":    {flaws{ChargePerRun: true, ChargesAnyway: true}, "IR-13,IR-34", []scenario{differing, expiry}},
		"executes without its store": {flaws{FailsOpen: true}, "IR-17", []scenario{storeLost}},
		"short lifetime":             {flaws{Lifetime: time.Second}, "IR-16,IR-32", []scenario{later}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShopSystem(t, c.flaws, 1)
			_, r := s.verdict(t, "-clause", c.clauses)
			var shown []scenario
			for _, a := range r.Anomalies {
				if a.Kind != executedTwice && a.Kind != wrongResponse {
					continue
				}
				shown = append(shown, a.Scenario)
				require.Eventually(t, func() bool { return s.repeats(t, a) }, time.Minute, time.Millisecond, "%s\n%s", a.Title, a.Curl)
			}
			require.Subset(t, shown, c.shows)
		})
	}
}

// An older key needs what happened to the server meanwhile, so the command that repeats its
// anomaly has the clauses that did it.
func TestShops_replay(t *testing.T) {
	t.Parallel()
	s := newShopSystem(t, flaws{Memory: true}, 1)
	_, r := s.verdict(t, "-clause", "IR-16,IR-17")
	find := func(r report) int {
		return slices.IndexFunc(r.Anomalies, func(a anomaly) bool { return a.Kind == executedTwice && a.Scenario == later })
	}
	require.GreaterOrEqual(t, find(r), 0)
	again := strings.Fields(r.Anomalies[find(r)].Replay)
	require.Equal(t, []string{os.Args[0], "-profile", s.profile, "-clause", "IR-17,IR-34"}, again[:5])
	_, r = s.verdict(t, again[3:]...)
	require.GreaterOrEqual(t, find(r), 0)
}

// repeats runs the lines of an anomaly with new keys.
func (s shopSystem) repeats(t *testing.T, a anomaly) bool {
	t.Helper()
	keys := make(map[string]string)
	text := regexp.MustCompile(`[0-9a-f]{32}`).ReplaceAllStringFunc(a.Curl, func(key string) string {
		keys[key] = cmp.Or(keys[key], newKey())
		return keys[key]
	})
	before := s.charges()
	command := exec.CommandContext(t.Context(), "sh", "-c", text)
	command.Dir, command.Env = s.folder, append(os.Environ(), "SHOP_KEY=secret-one")
	output, err := command.CombinedOutput()
	t.Logf("%s\n%s\n%s%v", a.Title, text, output, err)
	if a.Kind == wrongResponse {
		ids := regexp.MustCompile(`"id":"[^"]+"`).FindAllString(string(output), -1)
		return len(ids) > 1 && len(slices.Compact(ids)) == 1
	}
	return s.charges()-before > len(keys)
}

// -quick finds what does not need much time, and reports what it leaves out.
func TestShops_quick(t *testing.T) {
	t.Parallel()
	s := newShopSystem(t, flaws{Memory: true}, 1)
	status, r := s.verdict(t, "-quick")
	require.Equal(t, exitViolated, status)
	require.Equal(t, quickOmits, r.Omitted)
	require.Contains(t, r.NotExercised, gap{paused, "-quick does not pause the server"})
	var shown []scenario
	for _, a := range r.Anomalies {
		shown = append(shown, a.Scenario)
	}
	require.Subset(t, shown, []scenario{concurrent, cutOff}) // the one crash has a random moment
	require.NotContains(t, shown, paused)
}
