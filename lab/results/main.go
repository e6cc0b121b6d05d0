// Command results executes a large run, and keeps the figures that the run prints in
// results.json, from which docs/proof.md is generated:
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
