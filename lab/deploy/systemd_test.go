package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/stretchr/testify/require"
)

const (
	units     = "deploy/systemd"
	installed = "/usr/local/bin/orders"
)

// file contains the options of a unit, by section.
type file map[string]map[string]string

func parseUnit(t *testing.T, name string) file {
	t.Helper()
	options, err := unit.DeserializeOptions(strings.NewReader(read(t, filepath.Join(units, name))))
	require.NoError(t, err, name)
	parsed := file{}
	for _, option := range options {
		if parsed[option.Section] == nil {
			parsed[option.Section] = map[string]string{}
		}
		parsed[option.Section][option.Name] += option.Value
	}
	return parsed
}

func unitNames(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, units, pattern))
	require.NoError(t, err)
	var names []string
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

// example returns the variables of .env.example.
func example(t *testing.T) map[string]string {
	t.Helper()
	environment := map[string]string{}
	for line := range strings.Lines(read(t, ".env.example")) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(name, "#") {
			environment[name] = value
		}
	}
	return environment
}

func TestSystemd_services(t *testing.T) {
	t.Parallel()
	environment := example(t)
	ran := map[string]bool{}
	for _, name := range unitNames(t, "orders-*.service") {
		service := parseUnit(t, name)["Service"]
		words := strings.Fields(service["ExecStart"])
		require.Equal(t, installed, words[0], name)
		if own, value, found := strings.Cut(service["Environment"], "="); found {
			environment[own] = value
		}
		requireCommand(t, words[1:], environment)
		ran[words[1]] = true

		grace := 90 * time.Second // the default of systemd
		if text := service["TimeoutStopSec"]; text != "" {
			seconds, err := strconv.Atoi(text)
			require.NoError(t, err, name)
			grace = time.Duration(seconds) * time.Second
		}
		require.Greater(t, grace, longestStop(t, words[1:], environment), name)
		if service["Type"] != "oneshot" {
			require.Equal(t, "always", service["Restart"], name)
			require.Contains(t, parseUnit(t, name), "Install", name)
		}
	}
	require.Equal(t, map[string]bool{
		"migrate": true, "serve": true, "worker": true, "completer": true, "reaper": true, "reconcile": true,
	}, ran)
	for _, name := range unitNames(t, "orders-*.timer") {
		require.Contains(t, unitNames(t, "*.service"), strings.TrimSuffix(name, ".timer")+".service", "the timer has no service")
		require.NotEmpty(t, parseUnit(t, name)["Timer"]["OnCalendar"], name)
	}
}

func TestSystemd_hardening(t *testing.T) {
	t.Parallel()
	service := parseUnit(t, "orders-.service.d/hardening.conf")["Service"]
	require.Equal(t, "yes", service["DynamicUser"])
	require.Equal(t, "strict", service["ProtectSystem"])
	require.Equal(t, "yes", service["NoNewPrivileges"])
	require.Empty(t, service["CapabilityBoundingSet"])
	require.Equal(t, "/etc/orders/orders.env-/etc/orders/%N.env", service["EnvironmentFile"], "the second one is optional")
}

func TestSystemd_crontab(t *testing.T) {
	t.Parallel()
	var ran []string
	for line := range strings.Lines(read(t, units+"/crontab.example")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "SHELL=") || strings.HasPrefix(line, "MAILTO=") {
			continue
		}
		require.NotContains(t, line, "%", "cron treats % as the end of the command")
		words := strings.Fields(line)
		require.Equal(t, "orders", words[5], "the user follows five time fields")
		i := slices.Index(words, installed)
		require.Positive(t, i, line)
		require.Contains(t, line, "; . /etc/orders/orders.env; LOG_LEVEL=warn exec "+installed)
		requireCommand(t, words[i+1:], example(t))
		ran = append(ran, words[i+1])
	}
	require.Equal(t, []string{"completer", "reaper", "reconcile"}, ran)
}

// systemd-analyze checks the units if it is installed.
func TestSystemd_verify(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not installed: the units were only parsed")
		return
	}
	// It requires that the program exists, but not the environment file.
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(folder, os.DirFS(filepath.Join(root, units))))
	paths, err := filepath.Glob(filepath.Join(folder, "*.*"))
	require.NoError(t, err)
	var services, all []string
	for _, path := range paths {
		switch filepath.Ext(path) {
		case ".service":
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, bytes.ReplaceAll(text, []byte(installed), []byte(program(t, "orders"))), 0o644))
			services, all = append(services, path), append(all, path)
		case ".timer":
			all = append(all, path)
		}
	}
	require.Len(t, all, 9)
	out, err := exec.CommandContext(t.Context(), analyze, append([]string{"verify", "--man=no"}, all...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out), "systemd-analyze reported warnings")
	for _, path := range services {
		out, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=yes", "--threshold=25", path).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
