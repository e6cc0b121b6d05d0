package model_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

const modelFile = "../../spec/model/payment.pml"

// A trace is a history of the model.
type trace struct {
	name    string // seed and number of faults
	actions []action
}

type action struct {
	name   string
	run    int   // -1: of the environment
	hidden []int // intents that the provider's search does not find
	after  state
}

func (a action) String() string {
	if a.run < 0 {
		return fmt.Sprintf("%s | %s", a.name, a.after)
	}
	return fmt.Sprintf("%s %d | %s", a.name, a.run, a.after)
}

// state is what model and program have in common, as the model prints it.
type state struct {
	point   string
	locked  bool
	intent  int  // payment_intent_id; 0 is NULL
	waiting bool // the order's status is requires_action
	answer  string
	charges int
	intents [3]string // statuses
}

func (s state) String() string {
	return fmt.Sprintf("%s, locked %t, intent %d, waiting %t, answer %s | %d charges, %s",
		s.point, s.locked, s.intent, s.waiting, s.answer, s.charges, strings.Join(s.intents[:], " "))
}

// Spin prints a member of a record as a number, which counts from the end of its type.
var (
	points  = map[string]string{"4": "unused", "3": "order_created", "2": "charge_created", "1": "finished"}
	answers = map[string]string{"3": "none", "2": "paid", "1": "failed"}
)

var (
	traceLine  = regexp.MustCompile(`^trace (.+)$`)
	hiddenLine = regexp.MustCompile(`^hidden ([123])$`)
	actionLine = regexp.MustCompile(`^([a-z-]+)(?: ([01]))? \| (\d) (\d) (\d) (\d) (\d) \| (\d) (\w+) (\w+) (\w+)$`)
)

// parse reads the lines of actions; a line "trace name" begins a trace.
func parse(t testing.TB, text string) (traces []trace) {
	t.Helper()
	var hidden []int
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if m := traceLine.FindStringSubmatch(lines.Text()); m != nil {
			traces = append(traces, trace{name: m[1]})
			continue
		}
		if m := hiddenLine.FindStringSubmatch(lines.Text()); m != nil {
			hidden = append(hidden, number(t, m[1]))
			continue
		}
		m := actionLine.FindStringSubmatch(lines.Text())
		require.NotNil(t, m, "not a line of a trace: %s", lines.Text())
		a := action{name: m[1], run: -1, hidden: hidden, after: state{
			point: points[m[3]], locked: m[4] == "1", intent: number(t, m[5]), waiting: m[6] == "1", answer: answers[m[7]],
			charges: number(t, m[8]), intents: [3]string(m[9:12]),
		}}
		if m[2] != "" {
			a.run = number(t, m[2])
		}
		hidden = nil
		last := &traces[len(traces)-1]
		last.actions = append(last.actions, a)
	}
	require.NoError(t, lines.Err())
	return traces
}

func number(t testing.TB, digits string) int {
	t.Helper()
	n, err := strconv.Atoi(digits)
	require.NoError(t, err)
	return n
}

// simulated returns the lines of a random history, which the seed determines.
func simulated(t testing.TB, seed int) string {
	t.Helper()
	faults := seed % 5
	model, err := filepath.Abs(modelFile)
	require.NoError(t, err)
	spin := exec.CommandContext(t.Context(), "spin", "-T", fmt.Sprintf("-n%d", seed), "-DTRACES", fmt.Sprintf("-DFAULTS=%d", faults), model)
	spin.Dir = t.TempDir() // for its files
	output, err := spin.CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.NotContains(t, string(output), "assertion violated")
	lines := fmt.Sprintf("trace seed-%d-faults-%d\n", seed, faults)
	for line := range strings.Lines(string(output)) {
		if trimmed := strings.TrimSpace(line); actionLine.MatchString(trimmed) || hiddenLine.MatchString(trimmed) {
			lines += trimmed + "\n"
		}
	}
	return lines
}

func read(t testing.TB, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(content)
}

const tracesFile = "testdata/traces.txt"

const stored = 100 // traces in the file, at least

func TestTraces(t *testing.T) {
	t.Parallel()
	if *update {
		require.NoError(t, os.WriteFile(tracesFile, []byte(sample(t)), 0o644))
	}
	if *simulate == 0 {
		for _, trace := range parse(t, read(t, tracesFile)) {
			t.Run(trace.name, func(t *testing.T) {
				t.Parallel()
				replay(t, trace)
			})
		}
		return
	}
	var actions atomic.Int64
	t.Run("simulated", func(t *testing.T) {
		for n := range *simulate {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				trace := parse(t, simulated(t, *seed+n))[0]
				replay(t, trace)
				actions.Add(int64(len(trace.actions)))
			})
		}
	})
	fmt.Printf("%d traces, %d actions\n", *simulate, actions.Load())
}

// sample simulates traces until every action is in one of them. The last ones have
// actions that the others lack.
func sample(t *testing.T) (text string) {
	t.Helper()
	missing := actionNames(t)
	for n, kept := *seed, 0; kept < stored || len(missing) > 0; n++ {
		lines := simulated(t, n)
		before := len(missing)
		missing = slices.DeleteFunc(missing, func(name string) bool { return strings.Contains(lines, "\n"+name+" ") })
		if kept < stored || len(missing) < before {
			text += lines
			kept++
		}
	}
	return text
}

// actionNames returns the names that the model prints.
func actionNames(t *testing.T) (names []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?:did|happened)\("([a-z-]+)"\)`).FindAllStringSubmatch(read(t, modelFile), -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestTraces_complete(t *testing.T) {
	t.Parallel()
	traces := read(t, tracesFile)
	for _, name := range actionNames(t) {
		require.Contains(t, traces, "\n"+name+" ")
	}
}
