// Package deploy_test checks the image, the containers, the manifests, the units and the
// workflows. It parses each file with the library of the program that uses it, and runs
// each command's help with the orders binary of the Dockerfile. It is in this module
// because those libraries are large: make contract.
package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// folder contains the built programs. It is a package variable because tests share no
// other state.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "orders-image-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// built builds orders and stripetest once.
var built = sync.OnceValue(build)

func program(t *testing.T, name string) string {
	t.Helper()
	require.NoError(t, built())
	return filepath.Join(folder, "out", name)
}

func orders(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, "orders"), args...)
	cmd.Env = []string{}
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err = cmd.Run(); err != nil {
		t.Logf("orders %q: %s", args, stderr.String())
	}
	return out.String(), err
}

var variable = regexp.MustCompile(`(?m)^  ([A-Z][A-Z0-9_]+)(?: \(default (.*)\))?$`)

// variables returns the variables in a help text of orders, with their defaults.
func variables(help string) map[string]string {
	known := map[string]string{}
	for _, match := range variable.FindAllStringSubmatch(help, -1) {
		known[match[1]] = match[2]
	}
	return known
}

// variablesOf returns the variables of services and secrets that a command needs.
func variablesOf(args []string) []string {
	needed := []string{"DATABASE_URL"}
	if slices.Contains([]string{"serve", "worker", "completer", "reconcile"}, args[0]) {
		needed = append(needed, "STRIPE_SECRET_KEY", "STRIPE_WEBHOOK_SECRET", "EVENTS_URL", "EVENTS_SECRET")
	}
	if args[0] == "worker" {
		needed = append(needed, "SMTP_URL", "RECEIPTS_FROM")
	}
	return needed
}

// requireCommand checks that orders accepts the arguments, that required variables are
// set, and that orders knows each variable.
func requireCommand(t *testing.T, args []string, environment map[string]string) {
	t.Helper()
	_, err := orders(t, append(args[:len(args):len(args)], "-h")...) // it parses the arguments before -h
	require.NoError(t, err, "orders %q", args)
	for _, name := range variablesOf(args) {
		if slices.Contains([]string{"DATABASE_URL", "STRIPE_SECRET_KEY", "SMTP_URL", "RECEIPTS_FROM"}, name) {
			require.Contains(t, environment, name, "orders %q", args)
		}
	}
	if args[0] == "reconcile" {
		require.Contains(t, args, "--fix", "without --fix, an orphaned intent fails every run until it is older than --since")
	}
	known := knownVariables(t)
	for name := range environment {
		require.Contains(t, known, name, "orders %q", args)
	}
}

// knownVariables returns all variables that orders reads, with their defaults.
func knownVariables(t *testing.T) map[string]string {
	t.Helper()
	all, err := orders(t, "help", "env")
	require.NoError(t, err)
	return variables(all)
}

// flagOf returns the value of a flag in args, or its default.
func flagOf(t *testing.T, args []string, name string) time.Duration {
	t.Helper()
	text := ""
	for i, arg := range args {
		if value, found := strings.CutPrefix(arg, "--"+name+"="); found {
			text = value
		} else if arg == "--"+name {
			text = args[i+1]
		}
	}
	if text == "" {
		help, err := orders(t, args[0], "-h")
		require.NoError(t, err)
		match := regexp.MustCompile(`--` + name + `=(\S+)`).FindStringSubmatch(help)
		require.NotNil(t, match, help)
		text = match[1]
	}
	value, err := time.ParseDuration(text)
	require.NoError(t, err)
	return value
}

// longestStop returns how long a command may take to stop.
func longestStop(t *testing.T, args []string, environment map[string]string) time.Duration {
	t.Helper()
	text := environment["STEP_TIMEOUT"]
	if text == "" {
		text = knownVariables(t)["STEP_TIMEOUT"]
	}
	stripe, err := time.ParseDuration(text)
	require.NoError(t, err)
	run := 3*stripe + 15*time.Second // app.Durations.LongestRun
	switch args[0] {
	case "serve":
		return flagOf(t, args, "shutdown-delay") + run
	case "completer", "reconcile":
		return run
	case "worker":
		return run + stripe + 20*time.Second
	default:
		return 0
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(text)
}

// goVersion returns the version in go.mod.
func goVersion(t *testing.T) string {
	t.Helper()
	match := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))
	require.NotNil(t, match)
	return match[1]
}
