package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations"
	"example.com/orders-api/payments"
	"example.com/orders-api/receipts"
)

// Severity is the severity of a [Result].
type Severity int

// Severities.
const (
	OK Severity = iota
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
	line := fmt.Sprintf("%s %-13s  %s", []string{"✓", "!", "✗"}[r.Severity], r.Check, r.Message)
	return strings.Map(func(r rune) rune { // a driver's error may have several lines
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, line)
}

func failure(check string, err error, remedy string) Result {
	return Result{Failure, check, err.Error() + " → " + remedy}
}

// Checker runs the checks.
type Checker struct {
	Environment *boot.All // set by boot.Load
	ConfigError error     // the error of boot.Load
	Timeout     time.Duration
}

// Run runs every check whose variables are valid. Each dependency takes at most Timeout.
func (c Checker) Run(ctx context.Context) []Result {
	var invalid *boot.ConfigError
	var results []Result
	switch {
	case errors.As(c.ConfigError, &invalid):
		for _, problem := range invalid.Problems {
			results = append(results, Result{Failure, "configuration", problem.Name + ": " + problem.Text})
		}
	case c.ConfigError != nil:
		return []Result{{Failure, "configuration", c.ConfigError.Error()}}
	default:
		results = []Result{{OK, "configuration", "valid"}}
	}
	for _, dependency := range []struct {
		variables []string
		check     func(context.Context) []Result
	}{
		{[]string{"DATABASE_URL"}, c.checkDatabase},
		{[]string{"STRIPE_SECRET_KEY", "STRIPE_API_BASE"}, func(ctx context.Context) []Result { return []Result{c.CheckStripe(ctx)} }},
		{[]string{"SMTP_URL", "RECEIPTS_FROM"}, func(ctx context.Context) []Result { return []Result{c.checkMail(ctx)} }},
	} {
		if invalid != nil && slices.ContainsFunc(invalid.Problems, func(p boot.Problem) bool { return slices.Contains(dependency.variables, p.Name) }) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, c.Timeout)
		results = append(results, dependency.check(limited)...)
		cancel()
	}
	return results
}

// checkDatabase runs the checks of every command's start, and compares the clocks.
func (c Checker) checkDatabase(ctx context.Context) []Result {
	pool, err := boot.Connect(ctx, c.Environment.Database, slog.New(slog.DiscardHandler))
	if err != nil {
		return []Result{failure("database", err, "start the server, grant access to this machine and role, or correct DATABASE_URL")}
	}
	defer pool.Close()
	config := pool.Config().ConnConfig
	sessions := Result{OK, "sessions", "lock_timeout, statement_timeout and idle_in_transaction_session_timeout are set"}
	if err := postgres.CheckSession(ctx, pool); err != nil {
		sessions = failure("sessions", err, "docs/scaling.md says how to set them behind a pooler")
	}
	return []Result{{OK, "database", config.Database + " at " + config.Host}, checkDurability(ctx, pool), sessions, checkMigrations(ctx, pool), checkClock(ctx, pool)}
}

// checkDurability checks the settings without which a crash of the server can lose an
// order whose card was charged.
func checkDurability(ctx context.Context, pool *pgxpool.Pool) Result {
	const check = "durability"
	var off string
	err := pool.QueryRow(ctx, `
SELECT coalesce(string_agg(name, ', ' ORDER BY name), '')
  FROM pg_settings
 WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')
   AND setting = 'off'`).Scan(&off)
	switch {
	case err != nil:
		return failure(check, err, "try again")
	case off != "":
		return Result{Failure, check, off + " off: a crash may lose orders whose cards were charged → " +
			"turn it on in postgresql.conf, and for the database and the role"}
	}
	return Result{OK, check, "fsync, full_page_writes and synchronous_commit are on"}
}

func checkMigrations(ctx context.Context, pool *pgxpool.Pool) Result {
	const check = "migrations"
	if err := boot.CheckSchema(ctx, pool); err != nil {
		return failure(check, err, "orders migrate up")
	}
	migrator, err := migrations.New(pool, nil)
	if err != nil {
		return failure(check, err, "try again")
	}
	defer func() { _ = migrator.Close() }()
	newer, err := migrator.Newer(ctx)
	switch {
	case err != nil:
		return failure(check, err, "grant the role access to its own tables")
	case newer > 0:
		return Result{Warning, check, fmt.Sprintf("the database is at version %d, which a newer program has applied → "+
			"run the newer program, unless a deployment is in progress; or check DATABASE_URL", newer)}
	}
	return Result{OK, check, "all applied"}
}

// checkClock compares the database's clock with this machine's. Leases do not use this
// machine's clock (R8), but logs, expiry times and webhook signatures do.
func checkClock(ctx context.Context, pool *pgxpool.Pool) Result {
	const check, tolerance = "clock", 2 * time.Second
	sent := time.Now()
	now, err := postgres.Now(ctx, pool)
	if err != nil {
		return failure(check, err, "try again")
	}
	ahead := now.Sub(sent) // less the time of the query
	if ahead < -tolerance || ahead > tolerance+time.Since(sent) {
		return Result{Warning, check, fmt.Sprintf("the database's clock differs by %s from this machine's → "+
			"run a time service on both, as in timedatectl set-ntp true", ahead.Round(time.Second))}
	}
	return Result{OK, check, "the database's clock is within two seconds of this machine's"}
}

// CheckStripe checks the key and its permissions, and lists one payment at Stripe.
func (c Checker) CheckStripe(ctx context.Context) Result {
	const check = "stripe"
	client, err := payments.New(payments.Config{
		SecretKey: string(c.Environment.SecretKey),
		BaseURL:   c.Environment.APIBase,
		Timeout:   c.Timeout,
		Transport: boot.ProviderTransport(),
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return failure(check, err, "correct STRIPE_SECRET_KEY or STRIPE_API_BASE")
	}
	defer client.Close()
	var missing []string
	if strings.HasPrefix(string(c.Environment.SecretKey), "rk_") { // a restricted key
		missing, err = client.MissingPermissions(ctx)
	}
	if err == nil {
		err = client.Ping(ctx)
	}
	provider := c.Environment.ProviderURL()
	var failed *payments.Error
	switch {
	case len(missing) > 0:
		return Result{Failure, check, "the restricted key lacks permissions: " + strings.Join(missing, ", ") +
			" → grant them at https://dashboard.stripe.com/apikeys"}
	case err == nil:
		return Result{OK, check, fmt.Sprintf("%s accepts the key (mode: %s)", provider, c.Environment.Mode())}
	case errors.As(err, &failed) && failed.HTTPStatus == http.StatusUnauthorized:
		return failure(check, err, "the key is wrong or was rolled: get the current one at https://dashboard.stripe.com/apikeys")
	case failed != nil && failed.HTTPStatus == http.StatusForbidden:
		return failure(check, err, "let the key write PaymentIntents and Refunds")
	default:
		return failure(check, fmt.Errorf("%s: %w", provider, err),
			"allow HTTPS from this machine to it, correct STRIPE_API_BASE, or see https://status.stripe.com")
	}
}

// checkMail logs in at the mail server, or creates the folder for files.
func (c Checker) checkMail(ctx context.Context) Result {
	const check = "mail"
	if c.Environment.SMTPURL == "" {
		if _, err := c.Environment.Mailer(slog.New(slog.DiscardHandler)); err != nil {
			return failure(check, err, "make the folder writable, or set SMTP_URL")
		}
		return Result{Warning, check, "receipts are written to files → set SMTP_URL to send them"}
	}
	server, err := receipts.NewSMTP(string(c.Environment.SMTPURL))
	if err == nil {
		err = server.Check(ctx)
	}
	if err != nil {
		return failure(check, err, "start the server, grant access to this machine and user, or correct SMTP_URL")
	}
	return Result{OK, check, server.String() + " accepts the login"}
}
