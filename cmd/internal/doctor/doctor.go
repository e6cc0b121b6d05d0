package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations"
	"example.com/orders-api/payments"
	"example.com/orders-api/receipts"
)

// Marks of results.
const (
	OK      = "✓"
	Warning = "!"
	Failure = "✗"
)

// Result is the result of one check.
type Result struct {
	Mark    string
	Check   string // its name, such as "database"
	Message string
}

// String may have several lines, because a driver's error has.
func (r Result) String() string {
	return fmt.Sprintf("%s %-13s  %s", r.Mark, r.Check, r.Message)
}

func failure(check string, err error, remedy string) Result {
	return Result{Failure, check, err.Error() + " → " + remedy}
}

// Run runs every check whose variables are valid by loadErr, the error of [setup.Load]. Each
// dependency takes at most the timeout.
func Run(ctx context.Context, environment *setup.All, loadErr error, timeout time.Duration) []Result {
	results := []Result{{OK, "configuration", "valid"}}
	invalid := map[string]bool{}
	if failed, ok := errors.AsType[*setup.ConfigError](loadErr); ok {
		results = nil
		for _, problem := range failed.Problems {
			invalid[problem.Name] = true
			results = append(results, Result{Failure, "configuration", problem.Name + ": " + problem.Text})
		}
	}
	if !invalid["DATABASE_URL"] {
		results = append(results, checkDatabase(ctx, environment.Database, timeout)...)
	}
	if !invalid["STRIPE_SECRET_KEY"] && !invalid["STRIPE_API_BASE"] {
		results = append(results, Stripe(ctx, environment.Stripe, timeout))
	}
	if !invalid["SMTP_URL"] && !invalid["RECEIPTS_FROM"] {
		results = append(results, checkMail(ctx, environment.Mail, timeout))
	}
	return results
}

func checkDatabase(ctx context.Context, database setup.Database, timeout time.Duration) []Result {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pool, err := setup.Connect(ctx, database, slog.New(slog.DiscardHandler), postgres.Configure)
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

// checkDurability checks the settings without which a crash can lose a charged order.
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
	current, newest, err := migrations.Versions(ctx, pool)
	switch {
	case err != nil:
		return failure(check, err, "grant the role access to its own tables")
	case current < newest:
		return Result{Failure, check, fmt.Sprintf("the database schema is out of date → run orders migrate up (at %d, need %d)", current, newest)}
	case current > newest:
		return Result{Warning, check, fmt.Sprintf("the database is at version %d, which a newer program has applied → "+
			"run the newer program, unless a deployment is in progress; or check DATABASE_URL", current)}
	}
	return Result{OK, check, "all applied"}
}

// checkClock compares the database's clock with that of logs and webhook signatures.
func checkClock(ctx context.Context, pool *pgxpool.Pool) Result {
	const check, tolerance = "clock", 2 * time.Second
	sent := time.Now()
	now, err := postgres.Now(ctx, pool)
	if err != nil {
		return failure(check, err, "try again")
	}
	ahead := now.Sub(sent)
	if ahead < -tolerance || ahead > tolerance+time.Since(sent) {
		return Result{Warning, check, fmt.Sprintf("the database's clock differs by %s from this machine's → "+
			"run a time service on both, as in timedatectl set-ntp true", ahead.Round(time.Second))}
	}
	return Result{OK, check, "the database's clock is within two seconds of this machine's"}
}

// Stripe requests a list of payments.
func Stripe(ctx context.Context, config setup.Stripe, timeout time.Duration) Result {
	const check = "stripe"
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client := payments.New(payments.Config{
		SecretKey: string(config.SecretKey),
		BaseURL:   config.APIBase,
		Timeout:   timeout,
		Transport: setup.ProviderTransport(),
		Logger:    slog.New(slog.DiscardHandler),
	})
	defer client.Close()
	_, _, err := client.List(ctx, time.Now(), time.Time{}, "")
	provider := config.ProviderURL()
	failed, _ := errors.AsType[*payments.Error](err)
	switch {
	case err == nil:
		return Result{OK, check, fmt.Sprintf("%s accepts the key (mode: %s)", provider, config.Mode())}
	case failed != nil && failed.HTTPStatus == http.StatusUnauthorized:
		return failure(check, err, "the key is wrong or was rolled: get the current one at https://dashboard.stripe.com/apikeys")
	case failed != nil && failed.HTTPStatus == http.StatusForbidden:
		return failure(check, err, "let the key write PaymentIntents and Refunds")
	default:
		return failure(check, fmt.Errorf("%s: %w", provider, err),
			"allow HTTPS from this machine to it, correct STRIPE_API_BASE, or see https://status.stripe.com")
	}
}

// checkMail logs in at the mail server, or creates the folder for files.
func checkMail(ctx context.Context, config setup.Mail, timeout time.Duration) Result {
	const check = "mail"
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case config.SMTPURL != "":
	case config.Dir == "":
		return Result{Warning, check, "neither SMTP_URL nor RECEIPTS_DIR is set → set SMTP_URL, without which orders worker does not start"}
	default:
		if _, err := config.Mailer("", slog.New(slog.DiscardHandler)); err != nil {
			return failure(check, err, "make the folder writable, or set SMTP_URL")
		}
		return Result{Warning, check, "receipts are written to files → set SMTP_URL to send them"}
	}
	server, err := receipts.NewSMTP(string(config.SMTPURL))
	if err == nil {
		err = server.Check(ctx)
	}
	if err != nil {
		return failure(check, err, "start the server, grant access to this machine and user, or correct SMTP_URL")
	}
	return Result{OK, check, server.String() + " accepts the login"}
}
