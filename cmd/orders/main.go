package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"
	"runtime/debug"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/migrations"
)

type commands struct {
	Serve     serve          `cmd:"" help:"Run the API."`
	Worker    worker         `cmd:"" help:"Send staged receipts and events, and record what changes at the provider."`
	Completer completer      `cmd:"" help:"Resume the unfinished keys that clients abandoned (cron)."`
	Reaper    reaper         `cmd:"" help:"Empty finished keys whose retention is over (cron)."`
	Reconcile reconciliation `cmd:"" help:"Compare our records with the provider's payments and refunds, and list the differences that are open (cron)."`
	Erase     erase          `cmd:"" help:"Erase the personal data of a finished order."`

	Keys struct {
		List    keysList    `cmd:"" help:"List the unfinished keys, the oldest first."`
		Show    keysShow    `cmd:"" help:"Show the history of a key, order or refund, by any of its ids or the customer's email address."`
		Retry   keysRetry   `cmd:"" help:"Run an unfinished key again."`
		Resolve keysResolve `cmd:"" help:"Finish an unfinished key without charging, unless it was charged already."`
	} `cmd:"" help:"Find keys, and continue those that are stuck."`

	Jobs struct {
		List   jobsList   `cmd:"" help:"List what needs an operator: discrepancies, and the jobs that failed."`
		Retry  jobsRetry  `cmd:"" help:"Try a failed job, or all of them, again."`
		Delete jobsDelete `cmd:"" help:"Acknowledge a discrepancy that you have dealt with, or delete a failed job that can never succeed, such as a receipt to an address that does not exist."`
	} `cmd:"" help:"Find, repeat and end what needs an operator."`

	Migrate struct {
		Up     migrateUp     `cmd:"" help:"Apply all pending migrations."`
		Down   migrateDown   `cmd:"" help:"Roll back the migration that was applied last, and delete its data."`
		Status migrateStatus `cmd:"" help:"List the migrations and whether they are applied."`
	} `cmd:"" help:"Change the database schema."`

	Accounts struct {
		Create accountsCreate `cmd:"" help:"Create an account and print its API key."`
		List   accountsList   `cmd:"" help:"List the accounts."`
		Keys   struct {
			List   accountsKeysList   `cmd:"" help:"List the API keys of all accounts, or of one, without their secrets."`
			Create accountsKeysCreate `cmd:"" help:"Create another API key of an account and print it."`
			Revoke accountsKeysRevoke `cmd:"" help:"Revoke an API key of an account."`
		} `cmd:"" help:"Rotate the API keys of an account."`
	} `cmd:"" help:"Create accounts and API keys."`

	Healthcheck healthcheck      `cmd:"" help:"Check that a running API is ready (for containers)."`
	Help        app.Help         `cmd:"" help:"Print the help of a command, or with env all environment variables."`
	Version     version          `cmd:"" help:"Print the version."`
	ShowVersion kong.VersionFlag `name:"version" help:"Print the version."`

	close func() // what the command that runs has opened, or nil
}

// newApp creates the app with the environment of the selected command.
func newApp(ctx context.Context, selected *kong.Context) (*app.App, error) {
	config, err := app.LoadSelected(selected)
	if err != nil {
		return nil, err
	}
	return app.New(ctx, config)
}

// ProvideApp creates the app. kong calls it for a command whose Run has a parameter of this type.
func (c *commands) ProvideApp(ctx context.Context, selected *kong.Context) (_ *app.App, err error) {
	a, err := newApp(ctx, selected)
	if err == nil {
		c.close = a.Close
	}
	return a, err
}

// ProvideMigrator connects in the same way.
func (c *commands) ProvideMigrator(ctx context.Context, selected *kong.Context) (m *migrations.Migrator, err error) {
	config, err := app.LoadSelected(selected)
	if err != nil {
		return nil, err
	}
	m, c.close, err = app.Migrator(ctx, config.Database, config.Logger(os.Stderr))
	return m, err
}

// AfterRun closes what the command used. kong calls it after the command's Run.
func (c *commands) AfterRun() error {
	if c.close != nil {
		c.close()
	}
	return nil
}

func main() {
	app.Main("orders", "An orders API that charges exactly once.", new(commands), kong.Vars{"version": versionText(), "user": userName()})
}

// buildVersion is for builds without Git: -ldflags "-X main.buildVersion=1.2.3".
var buildVersion string

func versionText() string {
	info, _ := debug.ReadBuildInfo() // of a program that was built with modules
	return fmt.Sprintf("orders %s, %s", cmp.Or(buildVersion, info.Main.Version), info.GoVersion)
}

type version struct{}

func (version) Run() error { return printed(nil, "%s\n", versionText()) }

// by is the operator that an audit record names.
type by struct {
	By app.Text `default:"${user}" placeholder:"NAME" help:"Name of the operator, for the audit record (${user})."`
}

func userName() string {
	current, err := user.Current()
	if err != nil {
		return "unknown"
	}
	return current.Username
}

// withoutProvider is a part of the commands that do not call the provider.
type withoutProvider struct{}

func (withoutProvider) Environment(config *app.Config) []any { return config.Keys() }

// withProvider is a part of the commands that call the provider.
type withProvider struct{}

func (withProvider) Environment(config *app.Config) []any { return config.Operations() }

// printed prints the result of a command that did not fail.
func printed(err error, format string, arguments ...any) error {
	if err == nil {
		_, err = fmt.Printf(format, arguments...)
	}
	return err
}

// printTable prints a header and a line for each item.
func printTable[T any](header, format string, items []T, columns func(T) []any) error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, header)
	for _, item := range items {
		fmt.Fprintf(table, format+"\n", columns(item)...)
	}
	return table.Flush()
}

func formatTime(t time.Time) string { return t.UTC().Format(time.DateTime) }
