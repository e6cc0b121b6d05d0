package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"text/tabwriter"
	"text/template"
	"time"

	"github.com/alecthomas/kong"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/payments"
)

type commands struct {
	Serve     serve          `cmd:"" provider:"" help:"Run the API."`
	Worker    worker         `cmd:"" provider:"" help:"Send staged receipts and events, and record what changes at the provider."`
	Completer completer      `cmd:"" provider:"" help:"Resume the unfinished keys that clients abandoned (cron)."`
	Reaper    reaper         `cmd:"" help:"Empty finished keys whose retention is over (cron)."`
	Reconcile reconciliation `cmd:"" provider:"" help:"Compare our records with the provider's payments and refunds, and list the differences that are open (cron)."`
	Erase     erase          `cmd:"" help:"Erase the personal data of a finished order. Amounts, ids and the reference stay; docs/erase.md says what backups and the provider keep."`
	Migrate   migrate        `cmd:"" help:"Change the database schema, or show its state."`

	Keys struct {
		List    keysList    `cmd:"" help:"List the unfinished keys, the oldest first."`
		Show    keysShow    `cmd:"" help:"Show the history of a key and of what it created, by any of its ids or the customer's email address."`
		Retry   keysRetry   `cmd:"" provider:"" help:"Run an unfinished key again."`
		Resolve keysResolve `cmd:"" provider:"" help:"Finish an unfinished key without charging, unless it was charged already."`
	} `cmd:"" help:"Find keys, and continue those that are stuck."`

	Jobs struct {
		List   jobsList   `cmd:"" help:"List what needs an operator: discrepancies, and the jobs that failed."`
		Retry  jobsRetry  `cmd:"" help:"Try a failed job, or all of them, again."`
		Delete jobsDelete `cmd:"" help:"Acknowledge a discrepancy that you have dealt with, or delete a failed job that can never succeed, such as a receipt to an address that does not exist."`
	} `cmd:"" help:"Find, repeat and end what needs an operator."`

	Accounts struct {
		Create accountsCreate `cmd:"" help:"Create an account and print its API key."`
		List   accountsList   `cmd:"" help:"List the accounts."`
		Keys   struct {
			List   accountsKeysList   `cmd:"" help:"List the API keys of all accounts, or of one, without their secrets."`
			Create accountsKeysCreate `cmd:"" help:"Create another API key of an account and print it."`
			Revoke accountsKeysRevoke `cmd:"" help:"Revoke an API key of an account."`
		} `cmd:"" help:"Rotate the API keys of an account."`
	} `cmd:"" help:"Create accounts and API keys."`

	Help        app.Help         `cmd:"" help:"Print the help of a command, or with env all environment variables."`
	ShowVersion kong.VersionFlag `name:"version" help:"Print the version."`

	app *app.App // of the command that runs, or nil
}

// ProvideApp creates the app. No code of ours calls it: kong does, because it returns what the Run of the selected
// command wants as a parameter. Commands with the tag provider call Stripe, so they need its key.
func (c *commands) ProvideApp(ctx context.Context, selected *kong.Context) (*app.App, error) {
	required := []string{"DATABASE_URL"}
	if selected.Selected().Tag.Has("provider") {
		required = append(required, "STRIPE_SECRET_KEY")
	}
	config, err := app.Load(required...)
	if err == nil {
		c.app, err = app.New(ctx, config)
	}
	if err != nil && selected.Command() == "reconcile" {
		err = notCompared{err}
	}
	return c.app, err
}

// AfterRun closes the app. kong calls it after the command's Run.
func (c *commands) AfterRun() error {
	if c.app != nil {
		c.app.Close()
	}
	return nil
}

// Validate rejects flags without a value, and durations of 0, which has a meaning only for those with the tag zero.
func (*commands) Validate(selected *kong.Context) error {
	for _, flag := range selected.Flags() {
		negative := flag.Target.CanInt() && flag.Target.Int() < 0
		if empty := flag.Target.IsZero() && !flag.IsBool() && !flag.Tag.Has("zero"); flag.Set && (empty || negative) {
			return fmt.Errorf("--%s: must be positive, and not empty", flag.Name)
		}
	}
	return nil
}

func main() {
	app.Main("orders", "An orders API that charges a card once or not at all.", new(commands), kong.Vars{"version": versionText()})
}

// buildVersion is for builds without Git: -ldflags "-X main.buildVersion=1.2.3".
var buildVersion string

func versionText() string {
	info, _ := debug.ReadBuildInfo() // of a program that was built with modules
	return fmt.Sprintf("orders %s, %s", cmp.Or(buildVersion, info.Main.Version), info.GoVersion)
}

// by is the operator that an audit record names.
type by struct {
	By string `default:"unknown" env:"USER" placeholder:"NAME" help:"Name of the operator, for the audit record."`
}

// operator is by with a reason.
type operator struct {
	by

	Reason string `required:"" help:"The reason, for the audit record."`
}

func (o operator) audit() audit.Operator { return audit.Operator{Actor: o.By, Reason: o.Reason} }

// printed prints the result of a command that did not fail.
func printed(err error, format string, arguments ...any) error {
	if err == nil {
		_, err = fmt.Printf(format, arguments...)
	}
	return err
}

//go:embed output.tmpl
var outputText string

var outputs = template.Must(template.New("").Funcs(template.FuncMap{
	"money": payments.FormatAmount,
	"time":  func(t time.Time) string { return t.UTC().Format(time.DateTime) },
}).Parse(outputText))

// show prints data with a template of output.tmpl, whose columns have tabs between them.
func show(w io.Writer, output string, data any) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	return errors.Join(outputs.ExecuteTemplate(table, output, data), table.Flush())
}
