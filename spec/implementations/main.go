// Command implementations runs the conformance command against the implementations of
// entries.yaml, and writes the page implementations.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const usage = `Usage, in spec/:
  go run ./implementations [NAME[/STORE]]…               check these implementations (default: all) and write the page
  go run ./implementations serve NAME/STORE              start one for requests by hand
  go run ./implementations reproduce [NAME[/STORE]]…     run the cases of reproduce.sh twice, and keep their output
  go run ./implementations page                          write the page from the results
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
	lifetime := flags.String("lifetime", "", "with serve: the lifetime of a key in `seconds`")
	cases := flags.String("cases", "", "with reproduce: only these `cases`, such as race,crash")
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
	command, args := "", flags.Args()
	if len(args) > 0 && slices.Contains([]string{"page", "serve", "reproduce"}, args[0]) {
		command, args = args[0], args[1:]
	}
	if command == "page" {
		return writePage(root, all)
	}
	selected, err := choose(all, args)
	if err != nil {
		return err
	}
	switch command {
	case "serve":
		return serve(ctx, root, selected, *lifetime)
	case "reproduce":
		return reproduceAll(ctx, root, selected, strings.FieldsFunc(*cases, func(r rune) bool { return r == ',' }))
	}
	if err := checkAll(ctx, root, selected); err != nil {
		return err
	}
	return writePage(root, all)
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

// serve prints the environment of the scripts and waits for an interrupt.
func serve(ctx context.Context, root string, selected []subject, lifetime string) (err error) {
	if len(selected) != 1 {
		return fmt.Errorf("name one implementation and its store, such as %s", selected[0])
	}
	work, err := prepare(ctx, root, selected)
	if err != nil {
		return err
	}
	defer work.remove()
	b, err := work.bench(ctx, selected[0], lifetime, selected[0].store.Needs != "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	fmt.Println("export " + strings.Join(b.scriptEnvironment(), " "))
	<-ctx.Done()
	return nil
}
