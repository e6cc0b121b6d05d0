package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"

	"example.com/orders-api/cmd/internal/boot"
)

// errUsage says that the command line is wrong.
var errUsage = errors.New("usage")

// command is one word that orders understands.
type command struct {
	name    string
	purpose string
	run     func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

func commands() []command {
	return []command{
		{"demo", "a guided tour: charge an order, break things, see one charge", demo},
		{"dev", "everything in one process, on a private PostgreSQL and a stand-in for Stripe", dev},
		{"serve", "the API", serve},
		{"worker", "send staged receipts", worker},
		{"migrate", "bring the database's schema up, down, or show its status", migrate},
		{"accounts", "create an account and its API key", accounts},
		{"help", "this; help env lists the environment variables", help},
	}
}

// parse reads a command's flags. What is left over is an error: a misspelled
// flag must not be dropped in silence.
func parse(flags *flag.FlagSet, args []string, stderr io.Writer) error {
	flags.SetOutput(stderr)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: orders %s -h lists the flags", errUsage, flags.Name())
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: orders %s does not take %q", errUsage, flags.Name(), flags.Arg(0))
	}
	return nil
}

func help(_ context.Context, args []string, stdout, _ io.Writer) error {
	if len(args) > 0 && args[0] == "env" {
		return boot.PrintEnv(stdout)
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "An orders API that charges exactly once.\n\nUsage: orders <command> [flags]\n ")
	for _, c := range commands() {
		fmt.Fprintf(table, "  %s\t%s\n", c.name, c.purpose)
	}
	fmt.Fprintln(table, "\norders <command> -h lists the command's flags.")
	return table.Flush()
}
