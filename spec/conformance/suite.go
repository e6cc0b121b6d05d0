package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
)

// suite checks one server.
type suite struct {
	p        *profile
	level    int
	seed     uint64
	random   *rand.Rand
	http     *http.Client
	hooks    hooks
	progress func(line string)
	poll     time.Duration // the shortest pause between two attempts

	crash  *crashResult  // of the one crash test
	expiry *expiryResult // of the one expired key
}

func newSuite(p *profile, level int, seed uint64) *suite {
	return &suite{
		p: p, level: level, seed: seed,
		random:   rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // a run must be repeatable
		http:     newClient(p.Patience),
		progress: func(string) {},
		poll:     50 * time.Millisecond,
	}
}

// A check returns nil if the server satisfies the clause, notChecked or violation.
type check func(ctx context.Context, s *suite) error

// notChecked is the reason why a clause was not checked.
type notChecked string

func (n notChecked) Error() string { return string(n) }

// violation is a failure, with the exchanges that show it.
type violation struct {
	message   string
	cause     string
	exchanges []*exchange
}

func (v *violation) Error() string { return v.message }

func fails(exchanges []*exchange, format string, args ...any) error {
	return &violation{message: fmt.Sprintf(format, args...), exchanges: exchanges}
}

func shown(exchanges ...*exchange) []*exchange { return exchanges }

func describe(err error) string {
	var v *violation
	if !errors.As(err, &v) {
		return err.Error()
	}
	lines := []string{v.message}
	for _, e := range v.exchanges {
		lines = append(lines, e.lines()...)
	}
	return strings.Join(lines, "\n")
}

// probe requires that the operation can be executed.
func (s *suite) probe(ctx context.Context) error {
	_, err := s.execute(ctx, newKey(), s.p.Operation.Body)
	if err != nil {
		return err
	}
	_, err = s.effects(ctx)
	return err
}

func (s *suite) run(ctx context.Context, only []string) report {
	r := report{Version: version, Level: s.level, Seed: s.seed, Partial: len(only) > 0}
	table := clauses()
	slices.SortStableFunc(table, func(a, b clause) int { return a.level - b.level })
	for _, c := range table {
		if ctx.Err() != nil || len(only) > 0 && !slices.Contains(only, c.id) || c.level > s.level {
			continue
		}
		started := time.Now()
		res := result{Clause: c.id, Level: c.level, Class: c.class, Keyword: c.keyword, Title: c.title}
		res.set(s.check(ctx, c))
		if res.State == fail && s.p.Slow != nil {
			pause(ctx, 2*s.p.Slow.Lasts) // its requests may still be in progress
		}
		res.Seconds = time.Since(started).Seconds()
		s.redactResult(&res)
		r.Results = append(r.Results, res)
		s.progress(fmt.Sprintf("%-6s %s", c.id, res.State))
	}
	slices.SortStableFunc(r.Results, func(a, b result) int { return number(a.Clause) - number(b.Clause) })
	return r
}

func (s *suite) check(ctx context.Context, c clause) error {
	if c.check == nil {
		return notChecked("not observable from outside")
	}
	return c.check(ctx, s)
}

// secrets are the values of the credentials.
func (s *suite) secrets() []string {
	var values []string
	collect := func(headers map[string]string) {
		for _, value := range headers {
			values = append(values, value)
			if _, credential, ok := strings.Cut(value, " "); ok {
				values = append(values, credential)
			}
		}
	}
	collect(s.p.Account)
	collect(s.p.SecondAccount)
	collect(s.p.SecondCredential)
	for _, e := range s.p.Effects {
		collect(e.Headers)
	}
	return slices.DeleteFunc(values, func(value string) bool { return len(value) < 4 })
}

// redact replaces credentials.
func (s *suite) redact(text string) string {
	for _, secret := range s.secrets() {
		text = strings.ReplaceAll(text, secret, "[credential]")
	}
	return text
}

func (s *suite) redactResult(r *result) {
	r.Message = s.redact(r.Message)
	for i := range r.Exchanges {
		for j, line := range r.Exchanges[i] {
			r.Exchanges[i][j] = s.redact(line)
		}
	}
}

// pause returns false if the context is done.
func pause(ctx context.Context, duration time.Duration) bool {
	select {
	case <-time.After(duration):
		return true
	case <-ctx.Done():
		return false
	}
}
