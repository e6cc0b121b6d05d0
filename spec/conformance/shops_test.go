package main

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shopSystem is a running shop with its store and its provider.
type shopSystem struct {
	folder  string
	profile string // the profile file
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
	s := shopSystem{folder: folder, profile: filepath.Join(folder, "profile.yaml")}
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
account: {Authorization: Bearer secret-one}
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

// verdict runs the command as a user does, and returns its exit status and its report.
func (s shopSystem) verdict(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), append([]string{"-profile", s.profile}, args...), environment(), &stdout, &stderr)
	return exitStatus(err), fmt.Sprint(&stdout, "\n", err)
}

func TestShops_smoke(t *testing.T) {
	for name, f := range map[string]flaws{
		"safe":   {},
		"memory": {Memory: true, ChargePerRun: true},
		"lock":   {ChargePerRun: true, Forgets: true},
		"early":  {ReleasedAtOnce: true, ChargePerRun: true},
		"400":    {ChargesAnyway: true, ChargePerRun: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShopSystem(t, f, 1)
			text, _ := os.ReadFile(s.profile)
			var kept []string
			for line := range strings.SplitSeq(string(text), "\n") {
				if !strings.Contains(line, "dialect") && !strings.Contains(line, "pause:") && !strings.Contains(line, "resume:") && !strings.Contains(line, "_store:") {
					kept = append(kept, line)
				}
			}
			os.WriteFile(s.profile, []byte(strings.Join(kept, "\n")), 0o600)
			started := time.Now()
			status, report := s.verdict(t)
			t.Log(time.Since(started), status)
			os.WriteFile("/tmp/smoke-"+name, []byte(report), 0o600)
		})
	}
}
