package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// errNonconforming means that a MUST clause fails.
var errNonconforming = errors.New("the server does not conform")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errNonconforming):
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
}

type options struct {
	profile, format, output string
	level                   int
	clauses                 []string
	seed                    uint64
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.profile, "profile", "", "the profile `file` (required)")
	flags.IntVar(&o.level, "level", highestLevel, "the highest level to check, from 1 to 5")
	flags.StringVar(&o.format, "format", "text", "text, junit or json")
	flags.StringVar(&o.output, "output", "", "write the report to this `file`")
	flags.Uint64Var(&o.seed, "seed", 0, "repeat the random moments of another run (default: random)")
	only := flags.String("clause", "", "check only these `clauses`, such as IR-13,IR-24")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var faults []error
	if o.profile == "" {
		faults = append(faults, errors.New("-profile is required"))
	}
	if o.level < 1 || o.level > highestLevel {
		faults = append(faults, errors.New("-level must be from 1 to 5"))
	}
	if !slices.Contains([]string{"text", "junit", "json"}, o.format) {
		faults = append(faults, errors.New("-format must be text, junit or json"))
	}
	if flags.NArg() > 0 {
		faults = append(faults, fmt.Errorf("unknown argument %q", flags.Arg(0)))
	}
	if *only != "" {
		for name := range strings.SplitSeq(*only, ",") {
			name = strings.TrimSpace(name)
			if !slices.ContainsFunc(clauses(), func(c clause) bool { return c.id == name }) {
				faults = append(faults, fmt.Errorf("-clause: unknown clause %q", name))
			}
			o.clauses = append(o.clauses, name)
		}
	}
	if o.seed == 0 {
		o.seed = rand.Uint64() //nolint:gosec // the moments of faults are no secret
	}
	return o, errors.Join(faults...)
}

func run(ctx context.Context, args []string, lookup func(string) (string, bool), stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "init" {
		return runInit(args[1:], stdout, stderr)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(o.profile)
	if err != nil {
		return err
	}
	p, err := parseProfile(text, lookup)
	if err != nil {
		return fmt.Errorf("%s:\n%w", o.profile, err)
	}
	s := newSuite(p, o.level, o.seed)
	s.hooks = commandHooks(p.Commands, stderr)
	s.progress = func(line string) { fmt.Fprintln(stderr, line) }
	if err := s.probe(ctx); err != nil {
		return fmt.Errorf("the operation does not work:\n%s", s.redact(describe(err)))
	}
	r := s.run(ctx, o.clauses)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := write(o, r, stdout); err != nil {
		return err
	}
	if r.failed() {
		return errNonconforming
	}
	return nil
}

func write(o options, r report, stdout io.Writer) (err error) {
	if o.output == "" {
		return r.write(o.format, stdout)
	}
	file, err := os.OpenFile(o.output, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := r.write(o.format, file); err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, r.summary())
	return err
}
