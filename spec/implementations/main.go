// Command implementations runs the conformance command against the implementations in the
// folders beside it, and writes the pages implementations.md and implementations-form.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

const usage = `Usage, in spec/:
  go run ./implementations [NAME[/STORE]]…               check these implementations (default: all) and write the pages
  go run ./implementations serve NAME/STORE              start one for requests by hand
  go run ./implementations reproduce NAME/STORE SCRIPT   run reproduce/SCRIPT.sh twice against it, and keep its output
  go run ./implementations pages                         write the pages from the results
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "implementations:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("implementations", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	folder := flags.String("folder", "implementations", "the `folder` of the implementations")
	lifetime := flags.String("lifetime", "", "with serve and reproduce: the lifetime of a key in `seconds`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := filepath.Abs(*folder)
	if err != nil {
		return err
	}
	all, err := load(root)
	if err != nil {
		return err
	}
	switch args = flags.Args(); {
	case len(args) > 0 && args[0] == "pages":
		return writePages(root, all)
	case len(args) == 2 && args[0] == "serve":
		return withOne(ctx, root, all, args[1], *lifetime, serve)
	case len(args) == 3 && args[0] == "reproduce":
		return withOne(ctx, root, all, args[1], *lifetime, func(ctx context.Context, b *bench) error {
			return reproduce(ctx, root, b, args[2])
		})
	}
	selected, err := choose(all, args)
	if err != nil {
		return err
	}
	if err := checkAll(ctx, root, selected); err != nil {
		return err
	}
	return writePages(root, all)
}

// checkAll checks every implementation even if one of them does not start.
func checkAll(ctx context.Context, root string, selected []subject) error {
	work, err := prepare(ctx, root, selected)
	if err != nil {
		return err
	}
	defer work.remove()
	var failed []error
	for _, s := range selected {
		if err := work.check(ctx, root, s); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s, err))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(failed...)
}

func withOne(ctx context.Context, root string, all []*implementation, name, lifetime string, use func(context.Context, *bench) error) (err error) {
	selected, err := choose(all, []string{name})
	if err != nil {
		return err
	}
	if len(selected) != 1 {
		return fmt.Errorf("%s has several stores: name one, such as %s", name, selected[0])
	}
	work, err := prepare(ctx, root, selected)
	if err != nil {
		return err
	}
	defer work.remove()
	b, err := work.bench(ctx, selected[0], lifetime)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	return use(ctx, b)
}

// serve prints the environment of the scripts and waits for an interrupt.
func serve(ctx context.Context, b *bench) error {
	fmt.Println(strings.Join(b.scriptEnvironment(), "\n"))
	<-ctx.Done()
	return nil
}
