package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	pays := &provider{interrupted: filepath.Join(folder, "interrupted"), charges: []charge{}, late: f.ProviderLate}
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
  body: '{"amount":2500,"card":"visa","items":[{"sku":"tea","quantity":2}],"gift":true}'
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
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%v\n%s", err, &stdout)
		}
	})
	requireAnomalies(t, r)
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
	flags    string // enough to find it
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
		"memory cache that throws":      {flaws: flaws{Memory: true, Throws: true, ChargePerRun: true}, kinds: twice, among: []scenario{concurrent}, also: cutOff},
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

		"charges late, and answers 402": {
			flaws: flaws{DeclinesOnTimeout: true, ProviderLate: 3 * time.Second}, flags: "-clause IR-20,IR-33",
			kinds: []kind{failedYetDone}, among: []scenario{outage}, never: []scenario{once, repeated, concurrent},
		},
		"keys cut at a comma":        {flaws: flaws{CutAtComma: true}, flags: "-clause IR-53", kinds: []kind{otherKey}, among: []scenario{once}},
		"keys decoded":               {flaws: flaws{DecodesKeys: true}, flags: "-clause IR-53", kinds: []kind{otherKey}, among: []scenario{once}},
		"keys without punctuation":   {flaws: flaws{StripsPunctuation: true}, flags: "-clause IR-53", kinds: []kind{otherKey}, among: []scenario{once}},
		"order of lists ignored":     {flaws: flaws{OrderIgnored: true}, flags: "-clause IR-8", kinds: []kind{wrongResponse}, among: []scenario{differing}},
		"only the first bytes":       {flaws: flaws{PrefixHashed: true}, flags: "-clause IR-8", kinds: []kind{wrongResponse}, among: []scenario{differing}},
		"absent is false":            {flaws: flaws{AbsentIsFalse: true}, flags: "-clause IR-8", kinds: []kind{wrongResponse}, among: []scenario{differing}},
		"500 is \"500\"":             {flaws: flaws{TextIsNumber: true}, flags: "-clause IR-8", kinds: []kind{wrongResponse}, among: []scenario{differing}},
		"blocked by a disconnection": {flaws: flaws{Blocks: true}, flags: "-level 4", kinds: []kind{blocked}, among: []scenario{cutOff}},

		"safe, at two addresses":             {flaws: flaws{ProviderLate: time.Second}, replicas: 2},
		"lock in the process":                {flaws: flaws{ChargePerRun: true, ProcessLock: true}, replicas: 2, kinds: twice, among: []scenario{replicated}, never: []scenario{concurrent}},
		"looks for the charge, then charges": {flaws: flaws{LooksFirst: true}, kinds: twice, among: []scenario{paused}, never: []scenario{concurrent, crashed}},
		"the same, at two addresses":         {flaws: flaws{LooksFirst: true}, replicas: 2, kinds: twice, among: []scenario{paused}, never: []scenario{concurrent, crashed}},
		"executes without its store":         {flaws: flaws{FailsOpen: true}, kinds: twice, among: []scenario{storeLost}, never: []scenario{crashed, paused}},
		"store in memory":                    {flaws: flaws{Volatile: true}, kinds: twice, among: []scenario{storeLost}, never: []scenario{crashed, paused}},
		"rejects without its store":          {flaws: flaws{RejectsOnOutage: true}, kinds: []kind{failedYetDone}, among: []scenario{storeLost}, never: []scenario{crashed}},
	}
}

var runs = flag.Int("runs", 1, "how often TestShops_safe and TestTrial run each safe shop; more than once checks all clauses of unsafe ones")

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
			flags := strings.Fields(c.flags)
			if *runs > 1 {
				flags = nil // all clauses
			}
			status, r := s.verdict(t, flags...)
			// The moments of faults are random, so a run can miss the only one that shows the flaw.
			for tries := 1; status == exitSafe && tries < 3; tries++ {
				status, r = s.verdict(t, flags...)
			}
			require.Equal(t, exitViolated, status)
			require.Less(t, r.Seconds, (5 * time.Minute).Seconds())
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

// A replay with another status is a difference of form, and breaks no clause of safety.
func TestShops_otherStatus(t *testing.T) {
	t.Parallel()
	status, r := newShopSystem(t, flaws{ReplaysWith200: true}, 1).verdict(t)
	require.Empty(t, r.Anomalies)
	require.Equal(t, exitSafe, status)
	require.Equal(t, []verdict{noViolation, noViolation}, []verdict{r.Safety, r.Liveness})
	i := slices.IndexFunc(r.Results, func(res result) bool { return res.Clause == "IR-24" })
	require.Equal(t, []any{fail, form, "the replay has the status 200 instead of 201"}, []any{r.Results[i].State, r.Results[i].Class, r.Results[i].Message})
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
				// What happens by chance, such as a crash between two calls, may need many tries.
				shows := slices.Contains(c.shows, a.Scenario) && !slices.Contains(shown, a.Scenario)
				if !shows || a.Kind != executedTwice && a.Kind != wrongResponse {
					continue
				}
				shown = append(shown, a.Scenario)
				require.Eventually(t, func() bool { return s.repeats(t, a) }, 3*time.Minute, time.Millisecond, "%s\n%s", a.Title, a.Curl)
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

// A charge that comes later than its failure is neither that of another key nor other traffic.
func TestShops_quickLate(t *testing.T) {
	t.Parallel()
	s := newShopSystem(t, flaws{DeclinesOnTimeout: true, ProviderLate: 3 * time.Second}, 1)
	status, r := s.verdict(t, "-quick")
	require.Equal(t, exitViolated, status)
	require.Len(t, r.Anomalies, 1)
	require.Equal(t, []any{failedYetDone, outage, []string{"IR-20"}}, []any{r.Anomalies[0].Kind, r.Anomalies[0].Scenario, r.Anomalies[0].Clauses})
	require.Empty(t, r.Foreign)
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
	require.Subset(t, shown, []scenario{concurrent, cutOff, crashed})
	require.NotContains(t, shown, paused)
}

// flaws are what a shop does wrong. Without any, it charges once, in a form that is not
// that of the profile: 400 for a reused or expired key, X-Idempotency-Key, no problem
// documents and no Retry-After.
type flaws struct {
	Memory          bool // responses are cached in the process, and nothing else is
	Throws          bool // a request that is not JSON gets 500
	ProcessLock     bool // the claims are in the process, only the responses in the store
	NoLock          bool // the key is looked up, then executed, then stored
	ReleasedAtOnce  bool // the claim ends before the first call of the provider
	ReleasedEarly   bool // the claim ends before the charge
	ChargesAnyway   bool // a reused or expired key is executed, and then rejected
	NestedIgnored   bool // the fingerprint has only the top-level members
	FailureStored   bool // a 500 is stored
	AccountIgnored  bool // all accounts share their keys
	Forgets         bool // an expired key is a new one
	ChargePerRun    bool // the provider's key is random, and a late run still stores its result
	LooksFirst      bool // a run looks for the charge of an earlier one, and charges with a random key
	NeverContinued  bool // a key whose run was killed stays in progress
	FailsOpen       bool // a request is executed if the store cannot be read
	Volatile        bool // the store keeps its records in memory only
	RejectsOnOutage bool // a request is rejected for good if the store cannot be read

	DeclinesOnTimeout bool // 402 is stored if the provider does not respond
	ReplaysWith200    bool
	CutAtComma        bool // of a key, only the part before a comma counts
	DecodesKeys       bool // keys are decoded as a part of a URL
	StripsPunctuation bool // punctuation in a key does not count
	OrderIgnored      bool // the fingerprint has the items in ascending order
	PrefixHashed      bool // the fingerprint has the first 64 bytes of the body
	AbsentIsFalse     bool // the fingerprint has false for a missing member
	TextIsNumber      bool // "500" is read as 500
	Blocks            bool // after a connection broke, each request waits for ever

	ProviderLate time.Duration // how late the provider charges while it is interrupted

	Claim    time.Duration // the lifetime of a claim; default: 1 s
	Lifetime time.Duration // of a key; default: unlimited
}

// shop serves POST and GET /orders.
type shop struct {
	processConfig
	store storeClient
	pays  http.Client // calls the provider

	blocked atomic.Bool // with Blocks

	mu     sync.Mutex
	cache  map[string]*shopRecord // with Memory
	claims map[string]bool        // with ProcessLock
}

// shopRecord is what is stored of a key.
type shopRecord struct {
	Fingerprint string
	Claimed     time.Time // until when
	Charge      string    // the provider's key; it is committed before the charge
	Response    *shopResponse
}

type shopResponse struct {
	Status int
	Body   string
}

func newShop(c processConfig) *shop {
	if c.Flaws.Claim == 0 {
		c.Flaws.Claim = time.Second
	}
	return &shop{
		processConfig: c,
		store:         storeClient{url: c.Store, http: http.Client{Timeout: 5 * time.Second}},
		pays:          http.Client{Timeout: time.Minute},
		cache:         make(map[string]*shopRecord), claims: make(map[string]bool),
	}
}

type order struct {
	Amount int         `json:"amount"`
	Card   string      `json:"card"`
	Items  []orderItem `json:"items"`
	Gift   *bool       `json:"gift,omitempty"`
}

type orderItem struct {
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

func refuse(status int, text string) shopResponse {
	return shopResponse{status, fmt.Sprintf(`{"error":%q}`, text)}
}

var shopAccounts = map[string]string{"Bearer secret-one": "one", "Bearer secret-uno": "one", "Bearer secret-two": "two"}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if s.Flaws.Blocks {
		if s.blocked.Load() {
			<-r.Context().Done()
			return
		}
		defer func() { s.blocked.Store(r.Context().Err() != nil) }()
	}
	account := shopAccounts[r.Header.Get("Authorization")]
	var response shopResponse
	switch {
	case account == "":
		response = refuse(http.StatusUnauthorized, "unauthorized")
	case r.URL.Path != "/orders":
		response = refuse(http.StatusNotFound, "not found")
	case r.Method == http.MethodGet:
		response = s.list(r.Context(), account)
	default:
		response = s.create(r, account, body)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(response.Status)
	_, _ = io.WriteString(w, response.Body)
}

func (s *shop) list(ctx context.Context, account string) shopResponse {
	var found json.RawMessage
	if _, err := s.store.call(ctx, http.MethodGet, "prefix="+url.QueryEscape("order "+account+" "), "", &found); err != nil {
		return refuse(http.StatusServiceUnavailable, "no store")
	}
	return shopResponse{http.StatusOK, `{"data":` + string(found) + `}`}
}

// run is one execution of a request.
type shopRun struct {
	account, key, name string
	order              order
	fingerprint        string
	record             *shopRecord
	version            int
}

func (s *shop) create(r *http.Request, account string, body []byte) shopResponse {
	run := shopRun{account: account, key: r.Header.Get("X-Idempotency-Key")}
	if len(run.key) < 16 {
		return refuse(http.StatusBadRequest, "a key is required")
	}
	run.key = s.normalised(run.key)
	if s.Flaws.TextIsNumber {
		body = regexp.MustCompile(`"(\d+)"`).ReplaceAll(body, []byte("$1"))
	}
	if s.Flaws.Throws && r.Header.Get("Content-Type") != "application/json" {
		return refuse(http.StatusInternalServerError, "no body")
	}
	if json.Unmarshal(body, &run.order) != nil || run.order.Amount < 1 || len(run.order.Items) == 0 || run.order.Items[0].Quantity < 1 {
		return refuse(http.StatusBadRequest, "invalid order")
	}
	run.name = "key " + account + " " + run.key
	if s.Flaws.AccountIgnored {
		run.name = "key " + run.key
	}
	text := s.covered(run.order)
	if s.Flaws.PrefixHashed {
		text = body[:min(len(body), 64)]
	}
	run.fingerprint = fmt.Sprintf("%x", sha256.Sum256(text))
	if s.Flaws.Memory {
		return s.cached(r.Context(), run)
	}
	// A client that goes away does not stop its request.
	return s.decide(context.WithoutCancel(r.Context()), run)
}

// normalised returns what counts of a key.
func (s *shop) normalised(key string) string {
	if s.Flaws.CutAtComma {
		key, _, _ = strings.Cut(key, ",")
	}
	if decoded, err := url.PathUnescape(key); err == nil && s.Flaws.DecodesKeys {
		key = decoded
	}
	if s.Flaws.StripsPunctuation {
		key = regexp.MustCompile(`[[:punct:]]`).ReplaceAllString(key, "")
	}
	return key
}

// covered returns what the fingerprint covers.
func (s *shop) covered(o order) []byte {
	if s.Flaws.NestedIgnored {
		o.Items = nil
	}
	if s.Flaws.OrderIgnored {
		o.Items = slices.SortedFunc(slices.Values(o.Items), func(a, b orderItem) int { return cmp.Or(cmp.Compare(a.SKU, b.SKU), a.Quantity-b.Quantity) })
	}
	if s.Flaws.AbsentIsFalse && o.Gift == nil {
		o.Gift = new(bool)
	}
	text, _ := json.Marshal(o)
	return text
}

// cached is a middleware that keeps the responses that it has sent.
func (s *shop) cached(ctx context.Context, run shopRun) shopResponse {
	s.mu.Lock()
	found := s.cache[run.name]
	s.mu.Unlock()
	if found != nil {
		return *found.Response
	}
	response, made := s.execute(context.WithoutCancel(ctx), &run)
	if made.Name != "" {
		_, _ = s.store.put(context.WithoutCancel(ctx), made)
	}
	if ctx.Err() == nil && response.Status < http.StatusInternalServerError {
		s.mu.Lock()
		s.cache[run.name] = &shopRecord{Response: &response}
		s.mu.Unlock()
	}
	return response
}

func (s *shop) decide(ctx context.Context, run shopRun) shopResponse {
	if s.Flaws.ProcessLock {
		s.mu.Lock()
		busy := s.claims[run.name]
		s.claims[run.name] = true
		s.mu.Unlock()
		if busy {
			return refuse(http.StatusConflict, "in progress")
		}
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.claims, run.name)
		}()
	}
	err := s.lookup(ctx, &run)
	record := run.record
	switch {
	case err != nil && s.Flaws.FailsOpen:
		response, _ := s.execute(ctx, &run)
		return response
	case err != nil && s.Flaws.RejectsOnOutage:
		return refuse(http.StatusBadRequest, "unknown key")
	case err != nil:
		return refuse(http.StatusServiceUnavailable, "no store")
	case record == nil:
	case record.Response != nil && s.expired(run.key):
		return s.rejectKey(ctx, run, "expired")
	case record.Fingerprint != run.fingerprint:
		return s.rejectKey(ctx, run, "reused")
	case record.Response != nil && s.Flaws.ReplaysWith200 && record.Response.Status == http.StatusCreated:
		return shopResponse{http.StatusOK, record.Response.Body}
	case record.Response != nil:
		return *record.Response
	case time.Now().Before(record.Claimed), s.Flaws.NeverContinued && !record.Claimed.IsZero():
		return refuse(http.StatusConflict, "in progress")
	}
	return s.claim(ctx, run)
}

// rejectKey answers a request whose key cannot be used.
func (s *shop) rejectKey(ctx context.Context, run shopRun, reason string) shopResponse {
	if s.Flaws.ChargesAnyway {
		if _, made := s.execute(ctx, &run); made.Name != "" {
			_, _ = s.store.put(ctx, made)
		}
	}
	return refuse(http.StatusBadRequest, "the key is "+reason)
}

// expired reports whether the command expire was run for the key.
func (s *shop) expired(key string) bool {
	text, _ := os.ReadFile(filepath.Join(s.Folder, "expired"))
	return strings.Contains(string(text), key+"\n")
}

func (s *shop) lookup(ctx context.Context, run *shopRun) error {
	var found storeEntry
	status, err := s.store.call(ctx, http.MethodGet, "name="+url.QueryEscape(run.name), "", &found)
	if err != nil || status == http.StatusNotFound {
		return err
	}
	run.version, run.record = found.Version, new(shopRecord)
	if err := json.Unmarshal(found.Value, run.record); err != nil {
		return err
	}
	if s.Flaws.Forgets && run.record.Response != nil && s.expired(run.key) {
		run.record = nil
	}
	return nil
}

// claim takes the key, executes the request and stores its response.
func (s *shop) claim(ctx context.Context, run shopRun) shopResponse {
	chargeKey := newKey()
	if run.record != nil {
		chargeKey = run.record.Charge // of the interrupted run
	}
	run.record = &shopRecord{Fingerprint: run.fingerprint, Claimed: time.Now().Add(s.Flaws.Claim), Charge: chargeKey}
	if !s.Flaws.NoLock && !s.Flaws.ProcessLock {
		if response := s.save(ctx, &run); response != nil {
			return *response
		}
	}
	if s.Flaws.ReleasedAtOnce {
		s.release(ctx, &run)
	}
	response, made := s.execute(ctx, &run)
	if response.Status >= http.StatusInternalServerError && !s.Flaws.FailureStored {
		s.release(ctx, &run)
		return response
	}
	run.record.Response = &response
	var more []storeEntry
	if made.Name != "" {
		more = append(more, made)
	}
	if conflict := s.save(ctx, &run, more...); conflict != nil {
		return *conflict
	}
	return response
}

// save writes the record, and an order in the same transaction. Only a shop without a flaw
// requires that no other run has taken the key over.
func (s *shop) save(ctx context.Context, run *shopRun, more ...storeEntry) *shopResponse {
	value, _ := json.Marshal(run.record)
	e := storeEntry{Name: run.name, Value: value, Version: run.version, Lifetime: s.Flaws.Lifetime}
	if s.Flaws.ChargePerRun && run.record.Response != nil {
		e.Version = anyVersion
	}
	version, err := s.store.put(ctx, append(more, e)...)
	var refused shopResponse
	switch {
	case errors.Is(err, errVersion):
		refused = refuse(http.StatusConflict, "in progress")
	case err != nil:
		refused = refuse(http.StatusServiceUnavailable, "no store")
	default:
		run.version = version
		return nil
	}
	return &refused
}

// release lets the next request take the key.
func (s *shop) release(ctx context.Context, run *shopRun) {
	run.record.Claimed = time.Time{}
	_ = s.save(ctx, run)
}

// execute charges, and returns the response and the order.
func (s *shop) execute(ctx context.Context, run *shopRun) (shopResponse, storeEntry) {
	chargeKey := newKey()
	if run.record != nil && !s.Flaws.ChargePerRun {
		chargeKey = run.record.Charge
	}
	id := "or_" + chargeKey[:12]
	if s.Flaws.LooksFirst {
		if paid, ok := s.lookForCharge(ctx, id); ok {
			return s.created(run, paid)
		}
		chargeKey = newKey()
	}
	body, _ := json.Marshal(map[string]string{"card": run.order.Card, "order": id})
	if status, _ := s.pay(ctx, "/authorisations", chargeKey, body); status != http.StatusCreated {
		return refuse(http.StatusInternalServerError, "no provider"), storeEntry{}
	}
	if s.Flaws.ReleasedEarly {
		s.release(ctx, run)
	}
	status, paid := s.pay(ctx, "/charges", chargeKey, body)
	switch status {
	case http.StatusCreated:
	case http.StatusPaymentRequired:
		return refuse(http.StatusPaymentRequired, "declined"), storeEntry{}
	default:
		if s.Flaws.DeclinesOnTimeout {
			return refuse(http.StatusPaymentRequired, "declined"), storeEntry{}
		}
		return refuse(http.StatusInternalServerError, "no provider"), storeEntry{}
	}
	return s.created(run, paid)
}

func (s *shop) created(run *shopRun, paid charge) (shopResponse, storeEntry) {
	text, _ := json.Marshal(map[string]any{"id": paid.Order, "charge": paid.ID, "amount": run.order.Amount})
	made := storeEntry{Name: "order " + run.account + " " + paid.Order, Value: text, Version: anyVersion}
	return shopResponse{http.StatusCreated, string(text)}, made
}

func (s *shop) lookForCharge(ctx context.Context, order string) (charge, bool) {
	var list struct{ Data []charge }
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Provider+"/charges", nil)
	if err != nil {
		return charge{}, false
	}
	response, err := s.pays.Do(request)
	if err != nil {
		return charge{}, false
	}
	defer func() { _ = response.Body.Close() }()
	_ = json.NewDecoder(response.Body).Decode(&list)
	i := slices.IndexFunc(list.Data, func(c charge) bool { return c.Order == order })
	if i < 0 {
		return charge{}, false
	}
	return list.Data[i], true
}

func (s *shop) pay(ctx context.Context, path, key string, body []byte) (int, charge) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Provider+path, bytes.NewReader(body))
	if err != nil {
		return 0, charge{}
	}
	request.Header.Set("Idempotency-Key", key)
	response, err := s.pays.Do(request)
	if err != nil {
		return 0, charge{}
	}
	defer func() { _ = response.Body.Close() }()
	var made charge
	_ = json.NewDecoder(response.Body).Decode(&made)
	return response.StatusCode, made
}
