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

// Verdict says how bad a [Finding] is.
type Verdict int

// From good to bad. What could not be looked at is no fault of its own: the fault
// that was in the way is in the list too.
const (
	Good Verdict = iota
	NotLooked
	Warning
	Fault
)

// Finding is what one check found.
type Finding struct {
	Verdict Verdict
	About   string // a word, such as "database"
	Found   string
	Remedy  string // "" where there is nothing to do
}

// String is the finding in one line.
func (f Finding) String() string {
	line := fmt.Sprintf("%s %-13s  %s", []string{"✓", "-", "!", "✗"}[f.Verdict], f.About, f.Found)
	if f.Remedy != "" {
		line += " → " + f.Remedy
	}
	return strings.Map(func(r rune) rune { // errors of others may have lines of their own
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, line)
}

func good(about, format string, arguments ...any) Finding {
	return Finding{Verdict: Good, About: about, Found: fmt.Sprintf(format, arguments...)}
}

func notLooked(about, because string) Finding {
	return Finding{Verdict: NotLooked, About: about, Found: "not looked at, " + because}
}

// Examination is what [Examine] needs.
type Examination struct {
	Environment *Environment // as boot.Load has filled it
	Wrong       error        // what boot.Load said of it
	Limit       time.Duration
}

// Examine makes every check, each for as long as Limit at most, those of
// different partners at the same time. The order of the findings is always the
// same.
func Examine(ctx context.Context, e Examination) []Finding {
	quiet := slog.New(slog.DiscardHandler)
	groups := []func() []Finding{
		e.configuration,
		func() []Finding { return e.database(ctx, quiet) },
		func() []Finding { return e.provider(ctx, quiet) },
		func() []Finding { return []Finding{e.webhook()} },
		func() []Finding { return []Finding{e.mail(ctx, quiet)} },
	}
	findings := make([][]Finding, len(groups))
	var all sync.WaitGroup
	for i, group := range groups {
		all.Go(func() { findings[i] = group() })
	}
	all.Wait()
	return slices.Concat(findings...)
}

// bounded gives one check its time.
func (e Examination) bounded(ctx context.Context, check func(context.Context) Finding) Finding {
	ctx, cancel := context.WithTimeout(ctx, e.Limit)
	defer cancel()
	return check(ctx)
}

// configuration has a line for each fault.
func (e Examination) configuration() []Finding {
	const about = "configuration"
	var wrong *boot.ConfigError
	switch {
	case e.Wrong == nil:
		d := e.Environment.Durations
		return []Finding{good(about, "complete; STRIPE_TIMEOUT %s < LOCK_TIMEOUT %s < COMPLETER_GRACE %s < KEY_RETENTION %s",
			d.StripeTimeout, d.LockTimeout, d.CompleterGrace, d.KeyRetention)}
	case !errors.As(e.Wrong, &wrong):
		return []Finding{{Fault, about, e.Wrong.Error(), "orders help env lists every variable"}}
	}
	var findings []Finding
	for _, fault := range wrong.Faults {
		found, remedy, both := strings.Cut(fault.Text, "; ")
		if !both {
			remedy = "orders help env says what is expected"
		}
		findings = append(findings, Finding{Fault, about, fault.Name + ": " + found, remedy})
	}
	return findings
}

// usable says whether variables can be used; durations, which are about each
// other, count under the name of each.
func (e Examination) usable(names ...string) bool {
	var wrong *boot.ConfigError
	if !errors.As(e.Wrong, &wrong) {
		return e.Wrong == nil
	}
	return !slices.ContainsFunc(wrong.Faults, func(f boot.Fault) bool { return slices.Contains(names, f.Name) })
}
