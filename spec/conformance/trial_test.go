package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// trial is a defect of the shop in testdata/trial and what the command must report first.
type trial struct {
	flags  string // enough to find it
	status int
	kind   kind
	among  []scenario
	differ string // a clause that fails without an anomaly
}

func trialCases() map[string]trial {
	return map[string]trial{
		"key-of-64-characters": {"-clause IR-53", exitViolated, otherKey, []scenario{once}, ""},
		"key-normalised":       {"-clause IR-53", exitViolated, otherKey, []scenario{once}, ""},
		"query-ignored":        {"-clause IR-11", exitViolated, wrongResponse, []scenario{repeated}, ""},
		"responses-mixed-up":   {"-clause IR-16", exitViolated, otherKey, []scenario{concurrent}, ""},
		"decline-not-stored":   {"-clause IR-19", exitDiffers, "", nil, "IR-19"},
		"last-response-only":   {"-clause IR-19", exitViolated, executedTwice, []scenario{repeated}, ""},
		"keys-lost-at-start":   {"-quick", exitViolated, executedTwice, []scenario{crashed}, ""},
		"lock-in-the-process":  {"-clause IR-16", exitViolated, executedTwice, []scenario{replicated, concurrent}, ""}, // a slow machine outlasts the lease
		"lock-without-end":     {"-clause IR-33", exitViolated, blocked, []scenario{crashed}, ""},
		"types-ignored":        {"-clause IR-8", exitViolated, wrongResponse, []scenario{differing}, ""},
		"charge-of-the-run":    {"-clause IR-17", exitViolated, executedTwice, []scenario{crashed, replicated, concurrent}, ""}, // the same
	}
}

// TestTrial checks a server that is not written in Go: two processes that share SQLite. Each
// defect must be named, and the correct shop never accused.
func TestTrial(t *testing.T) {
	t.Parallel()
	// A command named python3 may be a script that starts it, which takes time at each restart.
	python, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.executable, end='')").Output()
	if err != nil {
		t.Skip("the shop needs python3: ", err)
	}
	path := filepath.Dir(string(python)) + string(os.PathListSeparator) + os.Getenv("PATH")
	for i := range *runs {
		t.Run(fmt.Sprint("correct ", i+1), func(t *testing.T) {
			t.Parallel()
			status, r := runTrial(t, path, "")
			require.Empty(t, r.Anomalies)
			require.Equal(t, []verdict{noViolation, noViolation}, []verdict{r.Safety, r.Liveness})
			require.Equal(t, exitSafe, status)
		})
	}
	for defect, c := range trialCases() {
		t.Run(defect, func(t *testing.T) {
			t.Parallel()
			flags := strings.Fields(c.flags)
			if *runs > 1 {
				flags = nil // all clauses
			}
			status, r := runTrial(t, path, defect, flags...)
			require.Equal(t, c.status, status)
			if c.differ != "" {
				require.Empty(t, r.Anomalies)
				require.Contains(t, r.differ(safety), c.differ)
				return
			}
			require.NotEmpty(t, r.Anomalies)
			require.Equal(t, c.kind, r.Anomalies[0].Kind, r.Anomalies[0].Title)
			require.Contains(t, c.among, r.Anomalies[0].Scenario)
		})
	}
}

// runTrial starts the shop and runs the command as a user does, in a folder of its own.
func runTrial(t *testing.T, path, defect string, flags ...string) (int, report) {
	t.Helper()
	folder := t.TempDir()
	here, err := os.Getwd()
	require.NoError(t, err)
	first, second := freeAddress(t), freeAddress(t)
	port := func(address string) string { return address[strings.LastIndex(address, ":")+1:] }
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.WaitDelay = folder, time.Second
		cmd.Env = append(os.Environ(), roleVariable+"=command", "PATH="+path, "SHOP="+filepath.Join(here, "testdata", "trial", "shop.py"),
			"SHOP_PORT="+port(first), "SHOP_SECOND_PORT="+port(second), "DEFECT="+defect)
		return cmd
	}
	t.Cleanup(func() {
		_ = exec.Command("sh", "-c", "kill -9 $(cat '"+folder+"/shop.pid' '"+folder+"/second.pid')").Run()
	})
	for name, address := range map[string]string{"shop": first, "second": second} {
		start := fmt.Sprintf(`python3 "$SHOP" %s >>%s.log 2>&1 & echo $! >%s.pid`, port(address), name, name)
		require.NoError(t, command("sh", "-c", start).Run())
		reachable(t, address)
	}
	binary, err := os.Executable()
	require.NoError(t, err)
	profile := filepath.Join(here, "profiles", "two-processes.yaml")
	check := command(binary, append([]string{"-profile", profile, "-report", "json=report.json"}, flags...)...)
	output, _ := check.CombinedOutput()
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(folder, "shop.log"))
			t.Logf("%s\nshop: %s", output, log)
		}
	})
	text, err := os.ReadFile(filepath.Join(folder, "report.json"))
	require.NoError(t, err)
	var r report
	require.NoError(t, json.Unmarshal(text, &r))
	return check.ProcessState.ExitCode(), r
}
