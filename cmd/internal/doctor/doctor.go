package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"example.com/orders-api/cmd/internal/boot"
)

// Severity is the severity of a [Result].
type Severity int

// Severities. A check is skipped because another one failed.
const (
	OK Severity = iota
	Skipped
	Warning
	Failure
)

// Result is the result of one check.
type Result struct {
	Severity Severity
	Check    string // its name, such as "database"
	Message  string // with the remedy after an arrow
}

// String returns the result as one line.
func (r Result) String() string {
	line := fmt.Sprintf("%s %-13s  %s", []string{"✓", "-", "!", "✗"}[r.Severity], r.Check, r.Message)
	return strings.Map(func(r rune) rune { // a driver's error may have several lines
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, line)
}

func ok(format string, arguments ...any) Result {
	return Result{Severity: OK, Message: fmt.Sprintf(format, arguments...)}
}

func skipped(reason string) Result { return Result{Severity: Skipped, Message: "skipped: " + reason} }

func warning(message, remedy string) Result {
	return Result{Severity: Warning, Message: message + " → " + remedy}
}

func failure(message, remedy string) Result {
	return Result{Severity: Failure, Message: message + " → " + remedy}
}

// Checker runs the checks.
type Checker struct {
	Environment *boot.All // set by boot.Load
	ConfigError error     // the error of boot.Load
	Timeout     time.Duration
}

// Run runs every check, each for at most Timeout, the dependencies concurrently. The
// order of the results is fixed.
func (c Checker) Run(ctx context.Context) []Result {
	groups := []func(context.Context) []Result{
		c.checkConfiguration, c.checkDatabase, c.CheckProvider, c.checkWebhook, c.checkMail,
	}
	results := make([][]Result, len(groups))
	var all sync.WaitGroup
	for i, group := range groups {
		all.Go(func() { results[i] = group(ctx) })
	}
	all.Wait()
	return slices.Concat(results...)
}

// check is a named check.
type check struct {
	name string
	run  func(context.Context) Result
}

// run runs checks one after the other, or skips them if one of their variables is
// invalid.
func (c Checker) run(ctx context.Context, variables []string, checks ...check) []Result {
	var invalid *boot.ConfigError
	valid := c.ConfigError == nil || errors.As(c.ConfigError, &invalid) &&
		!slices.ContainsFunc(invalid.Problems, func(p boot.Problem) bool { return slices.Contains(variables, p.Name) })
	results := make([]Result, len(checks))
	for i, check := range checks {
		results[i] = skipped(strings.Join(variables, " or ") + " is invalid")
		if valid {
			limited, cancel := context.WithTimeout(ctx, c.Timeout)
			results[i] = check.run(limited)
			cancel()
		}
		results[i].Check = check.name
	}
	return results
}

func (c Checker) checkConfiguration(context.Context) []Result {
	const name = "configuration"
	var invalid *boot.ConfigError
	switch {
	case c.ConfigError == nil:
		d := c.Environment.Durations
		return []Result{{OK, name, fmt.Sprintf("valid; STRIPE_TIMEOUT %s < LOCK_TIMEOUT %s < COMPLETER_GRACE %s < CHARGE_WINDOW %s < KEY_RETENTION %s",
			d.StripeTimeout, d.LockTimeout, d.CompleterGrace, d.ChargeWindow, d.KeyRetention)}}
	case !errors.As(c.ConfigError, &invalid):
		return []Result{{Failure, name, c.ConfigError.Error()}}
	}
	var results []Result
	for _, problem := range invalid.Problems {
		results = append(results, Result{Failure, name, problem.Name + ": " + problem.Text})
	}
	return results
}

func (c Checker) checkMail(ctx context.Context) []Result {
	return c.run(ctx, []string{"SMTP_URL", "RECEIPTS_FROM"}, check{"mail", func(ctx context.Context) Result {
		isServer := c.Environment.SMTPURL != ""
		remedy := "make the folder writable, or set SMTP_URL"
		if isServer {
			remedy = "start the server, grant access to this machine and user, or correct SMTP_URL"
		}
		mailer, err := c.Environment.Mailer(slog.New(slog.DiscardHandler))
		if err != nil {
			return failure(err.Error(), remedy)
		}
		checker, checkable := mailer.(interface {
			fmt.Stringer
			Check(ctx context.Context) error
		})
		if !checkable {
			return skipped("this mailer cannot be checked")
		}
		if err := checker.Check(ctx); err != nil {
			return failure(err.Error(), remedy)
		}
		if !isServer {
			return warning("receipts are written to files in "+checker.String(), "set SMTP_URL to send them")
		}
		return ok("%s accepts the login", checker)
	}})
}

// Limits for the difference of two clocks. Synchronised clocks differ by less than two
// seconds. At five minutes, webhooks are rejected.
const (
	clockWarning = 2 * time.Second
	clockFailure = time.Minute
)

// compareClocks compares a clock with this machine's. Leases do not use this machine's
// clock (R8), but logs, expiry times and webhook signatures do.
func compareClocks(clock string, ahead, uncertainty time.Duration) Result {
	difference, direction := ahead.Abs()-uncertainty, "ahead of"
	if ahead < 0 {
		direction = "behind"
	}
	message := fmt.Sprintf("%s is %s %s this machine's", clock, ahead.Abs().Round(time.Second), direction)
	const remedy = "run a time service on both, as in timedatectl set-ntp true"
	switch {
	case difference >= clockFailure:
		return failure(message, remedy)
	case difference >= clockWarning:
		return warning(message, remedy)
	}
	return ok("%s is within two seconds of this machine's", clock)
}
