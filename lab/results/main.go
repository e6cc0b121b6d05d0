// Command results executes a large run, and keeps the figures that the run prints in
// results.json, from which the tables of README.md and docs/proof.md are generated:
//
//	go -C lab run ./results crash
//	go -C lab run ./results soak 'SOAK="-orders 1500 -kills 25"'
//
// A run that fails is not recorded, because it needs a repair and not a page.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// record is what a page states of a run. Its command is as a reader would type it.
type record struct {
	Command string      `json:"command"`
	Date    string      `json:"date"`
	Took    string      `json:"took"`
	Cores   int         `json:"cores"`
	Figures [][2]string `json:"figures"` // names and values
}

func main() {
	if err := measure(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(1)
	}
}

// measure is called in lab/.
func measure(args []string) error {
	known := runs()
	i := slices.IndexFunc(known, func(r run) bool { return len(args) > 0 && r.name == args[0] })
	if i < 0 {
		return fmt.Errorf("unknown run %q", args)
	}
	start := time.Now()
	r := record{
		Command: strings.Join(append([]string{known[i].command}, args[1:]...), " "),
		Date:    start.UTC().Format(time.DateOnly), Cores: runtime.NumCPU(),
	}
	fmt.Println(r.Command)
	var printed bytes.Buffer
	shell := exec.Command("sh", "-c", r.Command) //nolint:gosec,noctx // a command of runs.go, which an interrupt reaches, too
	shell.Dir, shell.Stdout, shell.Stderr = "..", io.MultiWriter(os.Stdout, &printed), os.Stderr
	if err := shell.Run(); err != nil {
		return fmt.Errorf("%s: %w", r.Command, err)
	}
	r.Took = time.Since(start).Round(time.Second).String()
	var err error
	if r.Figures, err = known[i].read(printed.String()); err != nil {
		return err
	}
	all, err := records("results/results.json")
	if err != nil {
		return err
	}
	all[known[i].name] = r
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile("results/results.json", append(text, '\n'), 0o644) //nolint:gosec // not confidential
}

// records returns the last record of each run.
func records(path string) (map[string]record, error) {
	text, err := os.ReadFile(path) //nolint:gosec // a file of this folder
	if err != nil {
		return nil, err
	}
	all := map[string]record{}
	return all, json.Unmarshal(text, &all)
}

// read returns the figures in what a run printed: those of a pattern without a group are the
// number of its matches, with one group their values, and with two groups also their names.
func (r run) read(printed string) (figures [][2]string, err error) {
	for _, f := range r.figures {
		pattern := regexp.MustCompile("(?m)" + f.pattern)
		matches := pattern.FindAllStringSubmatch(printed, -1)
		if len(matches) == 0 {
			return nil, fmt.Errorf("%s printed nothing like %s", r.command, f.pattern)
		}
		switch pattern.NumSubexp() {
		case 0:
			figures = append(figures, [2]string{f.name, strconv.Itoa(len(matches))})
		case 1:
			var values []string
			for _, match := range matches {
				values = append(values, match[1])
			}
			figures = append(figures, [2]string{f.name, strings.Join(values, ", ")})
		default:
			for _, match := range matches {
				figures = append(figures, [2]string{match[1], columns.ReplaceAllString(match[2], "; ")})
			}
		}
	}
	return figures, nil
}

// columns separates those of a printed table.
var columns = regexp.MustCompile(` {2,}`)

// run is one of the large runs, with the command that a reader would type in the folder of
// the repository.
type run struct {
	name, command string
	figures       []figure
}

type figure struct{ name, pattern string }

// runs returns all runs in the order of the page.
func runs() []run {
	return []run{
		{"model", "make -C spec model", []figure{
			{"states reached, none with a violation", `^payment\.pml +(\S+) states in .* no violation$`},
			{"", `^([A-Z_]+) +\S+ states in .*, (violates: .*)$`},
		}},
		{"traces", "make -C lab traces", []figure{
			{"histories replayed", `^(\d+) traces, `},
			{"actions, each followed by a comparison", ` traces, (\d+) actions`},
		}},
		{"crash", "make crash", []figure{
			{"cases", `^crash matrix: (\d+) cases`},
			{"cases that failed", `^crash matrix: .* (\d+) failed`},
			{"mutants detected", `^crash mutants: (.*) caught$`},
		}},
		{"soak", "make -C lab soak", []figure{
			{"", `^(\w[\w:, -]*?) {2,}(\S.*)$`},
		}},
		{"steady", "make -C lab steady", []figure{
			{"", `^(\w[\w:, -]*?) {2,}(\S.*)$`},
		}},
		{"contract-fuzz", "make -C lab contract-fuzz", []figure{
			{"requests", `^(\d+) requests, `},
			{"paid orders", ` (\d+) paid orders, `},
			{"checks besides those of each response", ` (\d+) checks besides`},
			{"kinds of violations", ` (\d+) kinds of violations$`},
		}},
		{"recorded", "make -C lab recorded", []figure{
			{"", `^(\w[\w:, -]*?) {2,}(\S.*)$`},
		}},
		{"fuzz", "make fuzz", []figure{
			{"", `^(Fuzz\w+), for .*\n(?:fuzz: .*\n)*fuzz: elapsed: \S+ (?:execs: )?(\d+|gathering.*)`},
		}},
		{"conformance", "make -C spec conformance-check", []figure{
			{"level at which the API conforms", `conforms at level (\d)`},
			{"clauses that pass", `^(\d+) pass, `},
			{"MUST clauses that fail", ` (\d+) MUST and `},
			{"other clauses that fail", ` (\d+) SHOULD or MAY fail`},
			{"clauses that were not checked", ` (\d+) not exercised, `},
			{"clauses that cannot be observed from outside", ` (\d+) not observable`},
		}},
		{"conformance-broken", "make -C spec conformance-broken-check", []figure{
			{"broken servers detected", `^broken servers: (.*) detected$`},
		}},
		{"replication", "make -C lab replication-check", []figure{
			{"synchronous standby: acknowledged orders", `: (\d+) acknowledged orders, none lost`},
			{"asynchronous standby: acknowledged orders that were lost", ` (\d+ of \d+) acknowledged orders were lost`},
			{"charges for all of them after their retries", ` (\d+) charges after their retries`},
		}},
		{"patroni", "make -C lab patroni-check", []figure{
			{"versions", `^Testing (.*) …$`},
			{"leaders killed under load", `(\d+) kills, \d+ pg_rewind`},
			{"seconds from the kill to the next order", `from the kill to the next order: (.*);`},
			{"leaders paused and resumed", `from the pause to the next order`},
			{"orders, each with one charge, one receipt and one response", `orders: (\d+); acknowledged`},
			{"asynchronous standbys: acknowledged orders lost, and listed", ` (\d+ of \d+) acknowledged orders were lost`},
		}},
		{"citus", "make -C lab citus-check", []figure{
			{"tests that passed", `^--- PASS: `},
			{"in four schemas, each server killed once, nothing lost or doubled", ` (\d+ orders, .* events) in four schemas`},
			{"receipts and events sent again after a kill", ` (\d+) receipts and events were sent again`},
			{"moves of one schema under load", ` during its (\d+) moves`},
			{"throughput, relative to a plain schema on the same cores", `median ratio (.*)`},
		}},
	}
}
