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

// Environment is the environment of all commands together.
type Environment struct {
	boot.Database
	boot.Listen
	boot.Stripe
	boot.Mail
	boot.Durations
	boot.Completer
	boot.Log
}

// Severity is the severity of a [Result].
type Severity int

// Severities. A skipped check is no failure: the list contains the failure that
// prevented it.
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
	Message  string
	Remedy   string // "" if there is nothing to do
}

// String returns the result as one line.
func (r Result) String() string {
	line := fmt.Sprintf("%s %-13s  %s", []string{"✓", "-", "!", "✗"}[r.Severity], r.Check, r.Message)
	if r.Remedy != "" {
		line += " → " + r.Remedy
	}
	return strings.Map(func(r rune) rune { // a driver's error may have several lines
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, line)
}

func ok(check, format string, arguments ...any) Result {
	return Result{Severity: OK, Check: check, Message: fmt.Sprintf(format, arguments...)}
}

func skipped(check, reason string) Result {
	return Result{Severity: Skipped, Check: check, Message: "skipped: " + reason}
}

// Checker runs the checks.
type Checker struct {
	Environment *Environment // set by boot.Load
	ConfigError error        // the error of boot.Load
	Timeout     time.Duration
}

// Run runs every check, each for at most Timeout. The dependencies are checked
// concurrently. The order of the results is always the same.
func (c Checker) Run(ctx context.Context) []Result {
	discard := slog.New(slog.DiscardHandler)
	groups := []func() []Result{
		c.checkConfiguration,
		func() []Result { return c.checkDatabase(ctx, discard) },
		func() []Result { return c.CheckProvider(ctx) },
		func() []Result { return []Result{c.checkWebhook()} },
		func() []Result { return []Result{c.checkMail(ctx, discard)} },
	}
	results := make([][]Result, len(groups))
	var all sync.WaitGroup
	for i, group := range groups {
		all.Go(func() { results[i] = group() })
	}
	all.Wait()
	return slices.Concat(results...)
}

// withTimeout runs one check for at most Timeout.
func (c Checker) withTimeout(ctx context.Context, check func(context.Context) Result) Result {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return check(ctx)
}

// checkConfiguration returns one result for each problem.
func (c Checker) checkConfiguration() []Result {
	const name = "configuration"
	var invalid *boot.ConfigError
	switch {
	case c.ConfigError == nil:
		d := c.Environment.Durations
		return []Result{ok(name, "valid; STRIPE_TIMEOUT %s < LOCK_TIMEOUT %s < COMPLETER_GRACE %s < CHARGE_WINDOW %s < KEY_RETENTION %s",
			d.StripeTimeout, d.LockTimeout, d.CompleterGrace, d.ChargeWindow, d.KeyRetention)}
	case !errors.As(c.ConfigError, &invalid):
		return []Result{{Failure, name, c.ConfigError.Error(), "orders help env lists every variable"}}
	}
	var results []Result
	for _, problem := range invalid.Problems {
		message, remedy, found := strings.Cut(problem.Text, "; ")
		if !found {
			remedy = "orders help env describes the variable"
		}
		results = append(results, Result{Failure, name, problem.Name + ": " + message, remedy})
	}
	return results
}

// valid reports whether these variables are valid. Durations that are out of order
// have a name of their own.
func (c Checker) valid(names ...string) bool {
	var invalid *boot.ConfigError
	if !errors.As(c.ConfigError, &invalid) {
		return c.ConfigError == nil
	}
	return !slices.ContainsFunc(invalid.Problems, func(p boot.Problem) bool { return slices.Contains(names, p.Name) })
}
