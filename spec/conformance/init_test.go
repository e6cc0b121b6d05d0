package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// initialised returns the profile that init writes, and the file.
func initialised(t *testing.T, document string, flags ...string) (*profile, string) {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, runInit(append(flags, "-output", "-", document), &out, io.Discard))
	p, err := parseProfile(out.Bytes(), environment("BASE_URL", "http://127.0.0.1:1", "API_KEY", "secret"))
	require.NoError(t, err, out.String())
	return p, out.String()
}

func TestInit_orders(t *testing.T) {
	t.Parallel()
	p, text := initialised(t, filepath.Join("..", "..", "openapi.yaml"))
	require.Equal(t, map[string]string{"Authorization": "Bearer secret"}, p.Account)
	o := p.Operation
	require.Equal(t, []any{"POST", "/v1/orders", 201, location{Pointer: "/id"}, 402}, []any{o.Method, o.Path, o.Status, o.ID, o.Declines})
	require.NotContains(t, o.Body, `"reference"`, "a second order with it is rejected")
	require.Equal(t, strings.Replace(o.Body, `"quantity":1`, `"quantity":2`, 1), o.Changed)
	require.Equal(t, strings.Replace(o.Body, `"quantity":1`, `"quantity":0`, 1), o.Invalid)
	require.Contains(t, o.Declined, "chargeDeclined")
	require.NotContains(t, o.Body, "threeDSecure", "an order that waits for the customer has no final response")
	require.Regexp(t, "^/v1/orders/[0-9a-f-]{36}/refunds$", p.SecondOperation.Path)
	require.Equal(t, &statusResource{Path: "/v1/idempotency-keys/{key}", Expires: "/expires_at"}, p.Status)
	require.Equal(t, []string{preferAsync, preferWait}, p.Preferences)
	require.Len(t, p.Effects, 1)
	require.Equal(t, map[string]string{"/status": "paid"}, p.Effects[0].Only)
	require.Equal(t, dialect{}, p.Dialect, "its errors are the profile's")
	require.Contains(t, text, "# NOT FOUND: slow")
}

// What init writes from this project's document is a profile file with which the orders API
// passes.
func TestInit_report(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	profile := filepath.Join(folder, "conformance.yaml")
	var out bytes.Buffer
	require.NoError(t, runInit([]string{"-output", profile, filepath.Join("..", "..", "openapi.yaml")}, &out, io.Discard))

	server := exec.Command("bash", "-c", `set -euo pipefail; . ../../lab/dev.sh; echo "$url $key"; read -r _`)
	stdin, err := server.StdinPipe() // its end ends the server
	require.NoError(t, err)
	stdout, err := server.StdoutPipe()
	require.NoError(t, err)
	var log bytes.Buffer
	server.Stderr = &log
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = server.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err, log.String())
	url, key, _ := strings.Cut(strings.TrimSpace(line), " ")

	var report bytes.Buffer
	err = run(t.Context(), []string{"-profile", profile, "-strict"}, environment("BASE_URL", url, "API_KEY", key), &report, io.Discard)
	require.NoError(t, err, report.String())
	require.Contains(t, report.String(), "SAFETY no violation found")
}

func TestInit_otherStatuses(t *testing.T) {
	t.Parallel()
	p, _ := initialised(t, filepath.Join("testdata", "openapi", "payments.json"))
	require.Equal(t, map[string]string{"Authorization": "Basic secret"}, p.Account)
	o := p.Operation
	require.Equal(t, []any{200, location{Pointer: "/data/id"}}, []any{o.Status, o.ID})
	require.Equal(t, []string{`{"amount":2500,"card":"visa"}`, `{"amount":2501,"card":"visa"}`, `{"amount":0,"card":"visa"}`, `{"amount":2500,"card":"declined"}`},
		[]string{o.Body, o.Changed, o.Invalid, o.Declined})
	require.Equal(t, dialect{Reused: 409, InProgress: 425, Verdict: "none"}, p.Dialect)
	require.Equal(t, "X-Idempotent-Replay", p.ReplayHeader)
	require.Empty(t, *p.Effects[0].List)
	require.Equal(t, "https://sandbox.example/api", p.URL, "the document's address")
}

func TestInit_ugly(t *testing.T) {
	t.Parallel()
	p, text := initialised(t, filepath.Join("testdata", "openapi", "ugly.yaml"))
	require.Equal(t, "X-Idempotency-Token", p.KeyHeader)
	require.Equal(t, map[string]string{"X-Token": "secret"}, p.Account)
	o := p.Operation
	require.Equal(t, []any{"/v2/eu/transfers", location{Header: "Location"}}, []any{o.Path, o.ID})
	require.Equal(t, `{"currency":"EUR","parts":[{"share":1},{"share":1}],"to":"8f14e45f-ceea-467f-a9d4-1f6b7c3e2d10","value":5}`, o.Body)
	require.Equal(t, strings.Replace(o.Body, `"share":1`, `"share":2`, 1), o.Changed)
	require.Equal(t, strings.Replace(o.Body, `"share":1`, `"share":101`, 1), o.Invalid)
	require.Equal(t, dialect{Reused: 400, Verdict: "none", RetryAfter: "none"}, p.Dialect)
	require.Empty(t, p.ReplayHeader)
	for _, missing := range []string{"an example of the body", "a value of the required header field X-Client-Version", "effects:", "status:", "operation.declined", "dialect.in_progress"} {
		require.Contains(t, text, "# NOT FOUND: "+missing, text)
	}
}

// The terminal has what is missing and the next command. A file is never replaced.
func TestInit_terminal(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "conformance.yaml")
	document := filepath.Join("testdata", "openapi", "payments.json")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"init", "-output", file, document}, environment(), &out, io.Discard))
	require.Contains(t, out.String(), "checks POST /payments")
	require.Contains(t, out.String(), "at https://sandbox.example/api, which must be a test system")
	require.Contains(t, out.String(), "\n  API_KEY=… "+os.Args[0]+" -profile "+file)
	require.ErrorIs(t, runInit([]string{"-output", file, document}, io.Discard, io.Discard), os.ErrExist)
	require.ErrorContains(t, runInit([]string{"-operation", "POST /orders", document}, io.Discard, io.Discard), "no operation")
	require.ErrorContains(t, runInit(nil, io.Discard, io.Discard), "usage")
}
