package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// Main runs the selected command of a program. A command is a struct with a method Run, and its flags are
// the struct's fields (see kong). After a failure it exits with 1, or with 2 if the command line is wrong or
// the error has this exit code.
func Main(program, purpose string, commands any, options ...kong.Option) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)   // a second signal kills the process
	signal.Ignore(syscall.SIGPIPE) // otherwise a log or a pipe whose reader is gone would kill a run
	selected, err := kong.Must(commands, append(options,
		kong.Name(program), kong.Description(purpose), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)))...).Parse(os.Args[1:])
	if err == nil {
		err = selected.Run()
	}
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
	code := 1
	if coder := kong.ExitCoder(nil); errors.As(err, &coder) {
		code = min(coder.ExitCode(), 2) // kong's code of a wrong command line is 80
	}
	if wrong := new(kong.ParseError); errors.As(err, &wrong) {
		wrong.Context.Stdout = os.Stderr
		_ = kong.DefaultShortHelpPrinter(kong.HelpOptions{}, wrong.Context)
	}
	os.Exit(code)
}

// Help prints the help of a command, or the environment of all of them.
type Help struct {
	Command []string `arg:"" optional:"" help:"The command, or env for all environment variables."`
}

// Run runs the command.
func (h *Help) Run(parser *kong.Kong) error {
	if len(h.Command) == 1 && h.Command[0] == "env" {
		_, err := os.Stdout.WriteString(Variables)
		return err
	}
	_, err := parser.Parse(append(h.Command, "--help"))
	return err
}
