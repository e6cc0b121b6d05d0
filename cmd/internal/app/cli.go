package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// Main runs the selected command of a program. A command is a struct with a method Run, and its flags are
// the struct's fields (see kong). Run may have a parameter for the environment. After a failure it exits with 1, or with 2 if the
// command line is wrong or the error has an exit code of its own.
func Main(program, purpose string, commands any, options ...kong.Option) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)   // a second signal kills the process
	signal.Ignore(syscall.SIGPIPE) // otherwise a log or a pipe whose reader is gone would kill a run
	selected, err := kong.Must(commands, append(options,
		kong.Name(program), kong.Description(purpose), kong.Help(printHelp), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.BindToProvider(LoadSelected))...).Parse(os.Args[1:])
	if err == nil {
		err = selected.Run()
	}
	if err == nil {
		return
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = fmt.Errorf("interrupted: %w", err)
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

// environment is a command that reads the environment. Its help lists the variables of these groups.
type environment interface {
	Environment(config *Config) []any
}

// LoadSelected reads the variables of the selected command.
func LoadSelected(selected *kong.Context) (*Config, error) {
	config := new(Config)
	return config, Load(selected.Selected().Target.Addr().Interface().(environment).Environment(config)...)
}

func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	err := kong.DefaultHelpPrinter(options, ctx)
	if selected := ctx.Selected(); selected != nil && err == nil {
		if command, ok := selected.Target.Addr().Interface().(environment); ok {
			fmt.Fprint(ctx.Stdout, "\nEnvironment:\n")
			return PrintEnv(ctx.Stdout, command.Environment(new(Config))...)
		}
	}
	return err
}

// Help prints the help of a command, or the environment of all of them.
type Help struct {
	Command []string `arg:"" optional:"" help:"The command, or env for all environment variables."`
}

// Run runs the command.
func (h *Help) Run(parser *kong.Kong) error {
	if len(h.Command) == 1 && h.Command[0] == "env" {
		return PrintEnv(os.Stdout, new(Config).All()...)
	}
	_, err := parser.Parse(append(h.Command, "--help"))
	return err
}

// Count is a flag's value that must be positive.
type Count int

// Validate implements the validation of kong.
func (c Count) Validate() error {
	if c < 1 {
		return errors.New("must be positive")
	}
	return nil
}

// Interval is a positive duration, or 0 if it is not set.
type Interval struct{ time.Duration }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (i *Interval) UnmarshalText(text []byte) (err error) {
	i.Duration, err = time.ParseDuration(string(text))
	if err == nil && i.Duration <= 0 {
		return errors.New("must be a positive duration")
	}
	return err
}

// Text is a flag's value that must not be empty.
type Text string

// Validate implements the validation of kong.
func (t Text) Validate() error {
	if t == "" {
		return errors.New("must not be empty")
	}
	return nil
}
