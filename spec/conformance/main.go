// Command conformance checks an HTTP server against the profile
// spec/idempotent-requests.md. It sends requests only; the server can be written in any
// language. README.md explains the profile file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// outcome is an exit status with its reason.
type outcome struct {
	status int
	reason string
}

func (o *outcome) Error() string { return o.reason }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "conformance:", err)
	}
	os.Exit(exitStatus(err))
}

func exitStatus(err error) int {
	var o *outcome
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitSafe
	case errors.As(err, &o):
		return o.status
	default:
		return exitUsage
	}
}

type options struct {
	profile, history, judge, recheck, baseline string
	reports                                    []output
	level                                      int
	clauses                                    []string
	required                                   []scenario
	seed                                       uint64
	quick, strict                              bool
	against                                    *neighbour
}

// output is a report in a file.
type output struct{ format, file string }

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var faults []error
	wrong := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, "conformance -profile FILE checks a server, conformance init writes a profile file, and conformance -judge FILE judges a history.\n\nFlags:\n")
		flags.PrintDefaults()
		fmt.Fprint(stderr, "\nExit statuses:\n")
		for status, meaning := range exitMeanings() {
			fmt.Fprintf(stderr, "  %d  %s\n", status, meaning)
		}
	}
	flags.StringVar(&o.profile, "profile", "", "the profile `file`")
	flags.IntVar(&o.level, "level", highestLevel, "the highest level to check, from 1 to 5")
	flags.BoolVar(&o.quick, "quick", false, "check safety and liveness only, with one crash and no pause, in some seconds")
	flags.BoolVar(&o.strict, "strict", false, "exit with 3 if the form differs from the profile")
	flags.Uint64Var(&o.seed, "seed", 0, "repeat the random moments of another run (default: random)")
	flags.StringVar(&o.history, "history", "", "write all requests, effects and faults to this `file`")
	flags.StringVar(&o.judge, "judge", "", "judge the history in this `file` again, without a server")
	flags.StringVar(&o.recheck, "recheck", "", "send the first keys of the history in this `file` again")
	flags.StringVar(&o.baseline, "baseline", "", "compare with the known failures in this `file`")
	flags.Func("report", "write a report, such as `junit=FILE`: text, json, junit, html or baseline (repeatable)", func(value string) error {
		format, file, _ := strings.Cut(value, "=")
		if formats[format] == nil || file == "" {
			return fmt.Errorf("must be FORMAT=FILE, with the format %s", strings.Join(slices.Sorted(maps.Keys(formats)), ", "))
		}
		o.reports = append(o.reports, output{format, file})
		return nil
	})
	flags.Func("against", "judge by the rules of another `document`: draft, acp or ucp", func(name string) (err error) {
		o.against, err = against(name)
		return err
	})
	only := flags.String("clause", "", "check only these `clauses`, such as IR-13,IR-24")
	required := flags.String("require", "", "exit with 4 if one of these `scenarios` was not exercised, such as race,crash or all")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case o.profile == "" && o.judge == "":
		wrong("-profile or -judge is required")
	case o.profile != "" && o.judge != "":
		wrong("not both -profile and -judge: a history is judged without a server")
	case o.judge != "" && (o.recheck != "" || o.history != "" || o.against != nil || o.quick || *only != ""):
		wrong("with -judge, the history decides what was checked: -against, -clause, -history, -quick and -recheck need -profile")
	}
	if o.level < 1 || o.level > highestLevel {
		wrong("-level must be from 1 to 5")
	}
	if flags.NArg() > 0 {
		wrong("unknown argument %q", flags.Arg(0))
	}
	for _, name := range list(*only) {
		if !slices.ContainsFunc(clauses(), func(c clause) bool { return c.id == name }) {
			wrong("-clause: unknown clause %q", name)
		}
		o.clauses = append(o.clauses, name)
	}
	for _, name := range list(*required) {
		if name != "all" && !slices.ContainsFunc(questions(), func(q question) bool { return string(q.scenario) == name }) {
			wrong("-require: unknown scenario %q", name)
		}
		o.required = append(o.required, scenario(name))
	}
	if o.seed == 0 {
		o.seed = rand.Uint64() //nolint:gosec // the moments of faults are no secret
	}
	return o, errors.Join(faults...)
}

// list splits an argument with commas.
func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

func run(ctx context.Context, args []string, lookup func(string) (string, bool), stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "init" {
		return runInit(args[1:], stdout, stderr)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	var r report
	if o.judge != "" {
		r, err = judgeFile(o.judge)
	} else {
		r, err = checkServer(ctx, o, lookup, stderr)
	}
	if err != nil {
		return err
	}
	// The findings are shown even if a file cannot be written.
	err = r.writeText(stdout)
	for _, out := range o.reports {
		err = errors.Join(err, r.writeFile(out))
	}
	if err != nil {
		return err
	}
	return o.judgement(r, stdout)
}

// checkServer runs the clauses against the server.
func checkServer(ctx context.Context, o options, lookup func(string) (string, bool), stderr io.Writer) (r report, err error) {
	text, err := os.ReadFile(o.profile)
	if err != nil {
		return r, err
	}
	p, err := parseProfile(text, lookup)
	if err != nil {
		return r, fmt.Errorf("%s:\n%w", o.profile, err)
	}
	s := newSuite(p, o.level, o.seed)
	s.hooks = commandHooks(p.Commands, stderr)
	s.quick, s.only = o.quick, o.clauses
	if o.against != nil {
		s.judgeBy(o.against)
	}
	s.progress = func(line string) { fmt.Fprintln(stderr, line) }
	if o.history != "" {
		file, err := os.OpenFile(o.history, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return r, err
		}
		s.history.file = file
		defer func() { err = errors.Join(err, s.history.err, file.Close()) }()
	}
	if o.recheck != "" {
		return s.recheck(ctx, o)
	}
	if err := s.preflight(ctx, o.profile); err != nil && ctx.Err() == nil {
		return r, fmt.Errorf("the profile file does not fit the server:\n%s", s.redact(describe(err)))
	}
	return s.run(ctx), nil
}

func (r report) writeFile(out output) (err error) {
	file, err := os.OpenFile(out.file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return formats[out.format](r, file)
}

// judgement returns the exit status. Safety comes first.
func (o options) judgement(r report, stdout io.Writer) error {
	if o.baseline != "" {
		return o.compare(r, stdout)
	}
	switch {
	case r.Safety == violated || r.Liveness == violated:
		return &outcome{exitViolated, "the server violates safety or liveness"}
	case r.Safety == notJudged:
		return &outcome{exitUsage, "the account has other traffic, so safety was not judged"}
	case r.Safety == clausesDiffer || r.Liveness == clausesDiffer:
		return &outcome{exitDiffers, "clauses of safety or liveness fail, although no other violation was found"}
	case r.Ended != "":
		return &outcome{exitUsage, "the run ended early: " + r.Ended}
	}
	for _, g := range r.NotExercised {
		if slices.Contains(o.required, g.Scenario) || slices.Contains(o.required, "all") {
			return &outcome{exitNotExercised, fmt.Sprintf("%s is required but was not exercised: %s", g.Scenario, g.Reason)}
		}
	}
	if o.strict && (r.differing() > 0 || r.Dialect != "") {
		return &outcome{exitForm, "the form differs from the profile"}
	}
	return nil
}

// compare judges the report by a baseline.
func (o options) compare(r report, stdout io.Writer) error {
	file, err := os.Open(o.baseline)
	if err != nil {
		return err
	}
	known, err := readBaseline(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	failures, passes := r.against(known)
	for _, line := range failures {
		fmt.Fprintln(stdout, "unexpected failure:", line)
	}
	for _, line := range passes {
		fmt.Fprintln(stdout, "unexpected pass:", line)
	}
	switch {
	case slices.ContainsFunc(failures, func(line string) bool { return !strings.HasPrefix(line, string(form)) }):
		status := exitViolated
		if len(r.Anomalies) == 0 {
			status = exitDiffers
		}
		return &outcome{status, "there are violations that the baseline does not have"}
	case r.Ended != "":
		return &outcome{exitUsage, "the run ended early: " + r.Ended}
	case len(failures)+len(passes) > 0:
		return &outcome{exitForm, "the result differs from the baseline"}
	}
	return nil
}
