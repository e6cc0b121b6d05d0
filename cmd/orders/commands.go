package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/operations"
)

type command struct {
	name    string // one to three words
	purpose string
	run     func(context.Context, *invocation) error
}

func commands() []command {
	return []command{
		{"demo", "Run a guided tour: charge an order, cause failures, see one charge", runDemo},
		{"dev", "Run everything in one process, with its own PostgreSQL and a fake Stripe", dev},
		{"serve", "Run the API", serve},
		{"worker", "Send staged receipts", worker},
		{"completer", "Resume the unfinished keys that clients abandoned (cron)", completer},
		{"reaper", "Delete finished keys whose retention is over (cron)", reaper},
		{"reconcile", "Compare our records with the provider's payments and refunds (cron)", runReconcile},
		{"keys list", "List the abandoned keys and those that need review", keysList},
		{"keys show", "Show the history of a key, order or refund, by any of its ids", keysShow},
		{"keys retry", "Run an unfinished key again", operatorCommand((*operations.Service).Retry)},
		{"keys resolve", "Finish an unfinished key without charging, unless it was charged already", operatorCommand((*operations.Service).Resolve)},
		{"jobs list", "List the receipts that failed", jobsList},
		{"jobs retry", "Send a failed receipt, or all of them, again", jobsRetry},
		{"migrate up", "Apply all pending migrations", migrate(migrateUp)},
		{"migrate down", "Roll back the migration that was applied last, and delete its data", migrateDown},
		{"migrate citus", "Distribute the tables over the workers of a Citus cluster", migrate(migrateCitus)},
		{"migrate status", "List the migrations and whether they are applied", migrate(migrateStatus)},
		{"accounts create", "Create an account and print its API key", accountsCreate},
		{"accounts list", "List the accounts", accountsList},
		{"accounts keys list", "List the API keys of an account, without their secrets", ofAccount("", accountsKeysList)},
		{"accounts keys create", "Create another API key of an account and print it", ofAccount("", accountsKeysCreate)},
		{"accounts keys revoke", "Revoke an API key of an account", ofAccount("ID", accountsKeysRevoke)},
		{"healthcheck", "Check that a running API is ready (for containers)", healthcheck},
		{"help", "Print the help of a command, or with env all environment variables", help},
		{"version", "Print the version", version},
	}
}

var errUsage = errors.New("wrong usage")

// wrongUsage refers to the help of a command or, with "", to the overview.
func wrongUsage(about, format string, arguments ...any) error {
	return fmt.Errorf("%w: %s\n%s", errUsage, fmt.Sprintf(format, arguments...), strings.TrimSpace("See orders help "+about))
}

const maxWords = 3 // of a command's name

// run runs a command, or prints the help of a group.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	all := commands()
	if len(args) > 0 && (args[0] == "--version" || args[0] == "-version") {
		args = []string{"version"}
	}
	for words := min(len(args), maxWords); ; words-- {
		name, rest := strings.Join(args[:words], " "), args[words:]
		if i := slices.IndexFunc(all, func(c command) bool { return c.name == name }); i >= 0 {
			call := &invocation{command: all[i], flags: flag.NewFlagSet(name, flag.ContinueOnError), args: rest, stdout: stdout, stderr: stderr}
			call.flags.SetOutput(io.Discard)
			return call.run(ctx, call)
		}
		group := slices.DeleteFunc(slices.Clone(all), func(c command) bool { return words > 0 && !strings.HasPrefix(c.name, name+" ") })
		switch {
		case len(group) == 0:
		case len(rest) == 0:
			return errors.Join(overview(stderr, group), wrongUsage(name, "no command given"))
		case slices.Contains([]string{"-h", "-help", "--help"}, rest[0]):
			return overview(stdout, group)
		default:
			return wrongUsage(name, "there is no command %q", strings.Join(args[:words+1], " "))
		}
	}
}

func overview(w io.Writer, list []command) error {
	fmt.Fprint(w, "An orders API that charges exactly once.\n\nUsage: orders COMMAND [flags]\n\n")
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, c := range list {
		fmt.Fprintf(table, "  %s\t%s\n", c.name, c.purpose)
	}
	fmt.Fprintln(table, "\norders help COMMAND lists its flags and the environment it reads.")
	return table.Flush()
}

type invocation struct {
	command
	flags          *flag.FlagSet
	args           []string // after the command's name
	argument       string   // the name of a required argument that is no flag, before or after the flags
	value          string   // of the argument
	stdout, stderr io.Writer
}

// load parses the arguments and reads config from the environment.
func (i *invocation) load(config any, required ...string) error {
	if err := i.parse(config, required...); err != nil {
		return err
	}
	return setup.Load(config)
}

// parse requires a text or a positive value of required flags. -h prints the help and returns
// flag.ErrHelp.
func (i *invocation) parse(config any, required ...string) error {
	for rest := i.args; ; rest = i.flags.Args()[1:] {
		err := i.flags.Parse(rest)
		switch {
		case errors.Is(err, flag.ErrHelp):
			i.printHelp(config)
			return err
		case err != nil:
			return wrongUsage(i.name, "%v", err)
		case i.flags.NArg() == 0 && i.argument != "" && i.value == "":
			return wrongUsage(i.name, "orders %s requires %s", i.name, i.argument)
		case i.flags.NArg() == 0:
			return i.check(required)
		case i.argument == "" || i.value != "":
			return wrongUsage(i.name, "orders %s does not take %q", i.name, i.flags.Arg(0))
		}
		i.value = i.flags.Arg(0)
	}
}

// check allows zero if it is the default.
func (i *invocation) check(required []string) error {
	for _, name := range required {
		f := i.flags.Lookup(name)
		if f.Value.String() == "" {
			return wrongUsage(i.name, "orders %s requires --%s", i.name, name)
		}
		switch value := f.Value.(flag.Getter).Get().(type) {
		case int:
			if value < 1 {
				return wrongUsage(i.name, "--%s must be positive", name)
			}
		case time.Duration:
			if value < 0 || value == 0 && f.DefValue != "0s" {
				return wrongUsage(i.name, "--%s %s is not a positive duration", name, value)
			}
		}
	}
	return nil
}

func (i *invocation) printResult(err error, format string, arguments ...any) error {
	if err == nil {
		_, err = fmt.Fprintf(i.stdout, format, arguments...)
	}
	return err
}

func (i *invocation) printHelp(config any) {
	fmt.Fprintf(i.stdout, "Usage: orders %s [flags]\n\n%s.\n", strings.TrimSpace(i.name+" "+i.argument), i.purpose)
	var hasFlags bool
	i.flags.VisitAll(func(*flag.Flag) { hasFlags = true })
	if hasFlags {
		fmt.Fprint(i.stdout, "\nFlags:\n")
		i.flags.SetOutput(i.stdout)
		i.flags.PrintDefaults()
	}
	fmt.Fprint(i.stdout, "\nEnvironment:\n")
	setup.PrintEnv(i.stdout, config)
}

func help(ctx context.Context, call *invocation) error {
	if len(call.args) > 0 && call.args[0] == "env" {
		setup.PrintEnv(call.stdout, new(setup.All))
		return nil
	}
	return run(ctx, append(slices.Clone(call.args), "-h"), call.stdout, call.stderr)
}

// buildVersion is for builds without Git: -ldflags "-X main.buildVersion=1.2.3".
var buildVersion string

func version(_ context.Context, call *invocation) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("the build recorded no version")
	}
	return call.printResult(nil, "orders %s, %s\n", cmp.Or(buildVersion, info.Main.Version), info.GoVersion)
}
