package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// suite checks one server.
type suite struct {
	p        *profile
	level    int
	seed     uint64
	table    []clause
	against  string  // the document that is used instead of the profile
	dialect  dialect // of that document
	quick    bool
	only     []string // clauses; nil: all
	random   *rand.Rand
	http     *http.Client
	hooks    hooks
	progress func(line string)
	poll     time.Duration // the shortest pause between two attempts

	mu       sync.Mutex // of ledger and history
	ledger   *ledger
	history  recorder
	clause   string // that is checked
	sending  sync.WaitGroup
	requests atomic.Int64
	numbers  map[string]int // of the last count

	covered    []string          // by the check: what its result is based on
	deviations []string          // that the check has tolerated, because they are declared
	rejecting  map[accident]bool // whether the server rejects a damaged request
	first      request           // with the first key, for a replay at the end
	firstReply *exchange
	looked     int // see watch
	watched    int
	crash      *crashResult  // of the one crash test
	expiry     *expiryResult // of the one expired key

	stop    context.CancelCauseFunc // ends the run
	ended   func() error            // whether the run has ended
	stalled stalled
}

// stalled is the time for which no awaited final response came. suite.mu guards it.
type stalled struct {
	total, streak time.Duration // in all, and without any response since the last success
	until         time.Time     // the end of the last such time, because requests wait beside each other
	first         *exchange     // the first such request since the last success
	latest        *exchange     // the last request
	faults        int           // in progress, so that a response may be missing
	calm          time.Time     // the end of the last fault
}

func newSuite(p *profile, level int, seed uint64) *suite {
	s := &suite{
		p: p, level: level, seed: seed, table: clauses(),
		random:    rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // a run must be repeatable
		http:      newClient(p.Patience),
		progress:  func(string) {},
		poll:      50 * time.Millisecond,
		ledger:    newLedger(),
		rejecting: make(map[accident]bool),
		stop:      func(error) {},
		ended:     func() error { return nil },
	}
	s.history = recorder{started: time.Now(), redact: s.redact}
	return s
}

// covers notes what a result is based on.
func (s *suite) covers(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := fmt.Sprintf(format, args...); !slices.Contains(s.covered, text) {
		s.covered = append(s.covered, text)
	}
}

// deviates notes a difference from the profile that the profile file declares.
func (s *suite) deviates(what string) {
	if !slices.Contains(s.deviations, what) {
		s.deviations = append(s.deviations, what)
	}
}

// A check returns nil if the server satisfies the clause, notChecked or violation.
type check func(ctx context.Context, s *suite) error

// notChecked is the reason why a clause was not checked.
type notChecked string

func (n notChecked) Error() string { return string(n) }

// onlyDeclared is what the profile file states, without a request that shows it.
type onlyDeclared string

func (d onlyDeclared) Error() string { return string(d) }

// violation is a failure, with the exchanges that show it.
type violation struct {
	message   string
	cause     string
	form      bool // only the form differs: the request was rejected, but with another status
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

// run checks the clauses. If the context is done, or the server is blocked, it ends early with
// a report about what was seen until then.
func (s *suite) run(ctx context.Context) report {
	ctx, s.stop = context.WithCancelCause(ctx)
	defer s.stop(nil)
	s.ended = ctx.Err
	table := slices.Clone(s.table)
	slices.SortStableFunc(table, func(a, b clause) int { return a.level - b.level })
	var results []result
	unchecked := 0
	for _, c := range table {
		switch {
		case len(s.only) > 0 && !slices.Contains(s.only, c.id) || c.level > s.level || s.quick && c.class == form:
		case ctx.Err() != nil:
			unchecked++
		default:
			res := s.result(ctx, c)
			results = append(results, res)
			s.progress(fmt.Sprintf("%-6s %s", c.id, res.State))
		}
	}
	s.replayFirst(ctx)
	if ctx.Err() != nil {
		s.record(event{Ended: fmt.Sprintf("%s, during %s; not checked: %s", endReason(ctx), s.clause, plural(unchecked, "clause"))})
	}
	for i := range results {
		s.redactResult(&results[i])
		s.clause = results[i].Clause
		s.record(event{Result: &results[i]})
	}
	return s.ledger.report(results)
}

// These errors end the run.
var (
	errBlocked = errors.New("the server is blocked")
	errSilent  = errors.New("an address of the effects does not respond")
)

func endReason(ctx context.Context) string {
	cause := context.Cause(ctx)
	if errors.Is(cause, errBlocked) || errors.Is(cause, errSilent) {
		return cause.Error()
	}
	return "interrupted"
}

// A run waits for so many times patience without any response and success, or without a final response in all.
// Otherwise each check would wait for a blocked server.
const (
	mostSilent = 2
	mostWaits  = 7
)

// timedOut adds a request without a response. While a fault happens, none is due.
func (s *suite) timedOut(e *exchange, address string, err error) {
	var failed net.Error
	if !errors.As(err, &failed) || !failed.Timeout() {
		return
	}
	s.mu.Lock()
	excused := s.stalled.faults > 0 || s.stalled.calm.After(e.sent)
	s.mu.Unlock()
	cause := errBlocked
	if e.number == 0 && !slices.ContainsFunc(s.addresses(), func(own string) bool { return strings.HasPrefix(address, own) }) {
		cause = errSilent
	}
	if !excused {
		s.inVain(e, e.sent, cause)
	}
}

// inVain adds the time since a moment, at which a request was sent that has no final response
// now. It ends the run if that time is too long in all.
func (s *suite) inVain(e *exchange, since time.Time, cause error) {
	s.mu.Lock()
	now := time.Now()
	if s.stalled.until.After(since) {
		since = s.stalled.until
	}
	s.stalled.total += now.Sub(since)
	if e.status == 0 { // a server that responds may be blocked for one key only
		s.stalled.streak += now.Sub(since)
	}
	s.stalled.until = now
	if e.number == 0 { // a GET, which waits for what the request before has blocked
		e = s.stalled.latest
	}
	if s.stalled.first == nil {
		s.stalled.first = e
	}
	v := s.stalled
	known := slices.ContainsFunc(s.ledger.seen, func(one sighting) bool { return one.kind == blocked })
	s.mu.Unlock()
	if v.streak < mostSilent*s.p.Patience && v.total < mostWaits*s.p.Patience {
		return
	}
	if !known && errors.Is(cause, errBlocked) {
		message := fmt.Sprintf("the command waited for %s without a final response", v.total.Round(time.Second))
		s.violates(liveness, blocked, message, slices.DeleteFunc(shown(v.first), func(e *exchange) bool { return e == nil })...)
	}
	s.stop(cause)
}

// sent notes a request. A success ends the time without one.
func (s *suite) sent(e *exchange, answer answered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stalled.latest = e; answer == succeeded {
		s.stalled.streak, s.stalled.first = 0, nil
	}
}

// excuse begins or ends a fault, during which a response may be missing.
func (s *suite) excuse(change int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled.faults, s.stalled.calm = s.stalled.faults+change, time.Now()
}

// result runs a check, with an account of its effects.
func (s *suite) result(ctx context.Context, c clause) result {
	started := time.Now()
	s.clause, s.covered, s.deviations = c.id, nil, nil
	res := result{Clause: c.id, Level: c.level, Class: c.class, Keyword: c.keyword, Title: c.title}
	err := s.check(ctx, c)
	if c.check != nil {
		_, uncounted := s.account(ctx)
		err = cmp.Or(err, uncounted)
		s.watch(ctx)
	}
	if ctx.Err() != nil {
		err = notChecked("the run ended before its result") // its violations are known nevertheless
	}
	res.set(err)
	if res.State == pass && len(s.deviations) > 0 {
		res.State, res.Message = dialectal, "declared: "+strings.Join(s.deviations, ", ")
	}
	res.Covered = strings.Join(s.covered, "; ")
	res.Seconds = time.Since(started).Seconds()
	return res
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
	collect(s.p.RestrictedCredential)
	for _, e := range s.p.Effects {
		collect(e.Headers)
	}
	for _, value := range slices.Clone(values) {
		if quoted, _ := json.Marshal(value); string(quoted) != `"`+value+`"` {
			values = append(values, string(quoted[1:len(quoted)-1])) // as a history has it
		}
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

// ownAccount is the account whose effects are counted.
const ownAccount = "account"

// record adds an event to the history, and judges it.
func (s *suite) record(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.At, e.Clause = s.history.since(time.Now()), s.clause
	s.ledger.apply(e)
	s.history.write(e)
}

// fault runs a command of the operator. An interrupt does not end a command in the middle,
// because the fault that it has caused would remain.
func (s *suite) fault(ctx context.Context, name string, run hook, key string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	begins, ends := endOf(name) != "", faultNames[name] == ""
	if begins {
		s.excuse(1)
	}
	s.record(event{Fault: &fault{Name: name, Key: key}})
	err := run(context.WithoutCancel(ctx), key)
	if ends || begins && err != nil {
		s.excuse(-1)
	}
	return err
}

// violates records a violation that no count of effects shows. After the end of the run, each
// request fails.
func (s *suite) violates(c class, k kind, message string, exchanges ...*exchange) {
	if s.ended() != nil {
		return
	}
	f := finding{Class: c, Kind: k, Message: message}
	for _, e := range exchanges {
		f.Attempts = append(f.Attempts, e.number)
	}
	s.record(event{Finding: &f})
}

// account ends a window: it counts the effects of all requests since the last count and
// judges them. The suite does so around every check. A check does so in between when it
// needs the number, or a small witness.
//
// It waits until no earlier request can be in progress any more. Otherwise an effect in the
// next window could be a late one of that request or a second one of the next.
func (s *suite) account(ctx context.Context) (map[string]tally, error) {
	for {
		fresh, err := s.accountFor(ctx, 0)
		s.mu.Lock()
		wait := s.ledger.settled() - s.history.since(time.Now())
		s.mu.Unlock()
		if err != nil || wait <= 0 || !pause(ctx, time.Duration(wait*float64(time.Second))) {
			return fresh, err
		}
	}
}

// accountFor waits until there are at least this many new effects, and all that the
// responses of this window have promised.
func (s *suite) accountFor(ctx context.Context, want int) (map[string]tally, error) {
	s.awaitQuiet(ctx)
	deadline := time.Now().Add(s.p.Patience)
	for {
		taken, err := s.effects(ctx)
		if err != nil {
			return nil, err
		}
		fresh := s.since(taken)
		if time.Now().After(deadline) || !s.incomplete(fresh, want) {
			s.numbers = taken.numbers()
			s.record(event{Effects: fresh})
			return fresh, nil
		}
		if !pause(ctx, s.poll) {
			return nil, ctx.Err()
		}
	}
}

func (s *suite) incomplete(fresh map[string]tally, want int) bool {
	for _, t := range fresh {
		if t.size() < want && !t.Partial {
			return true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.missing(fresh)
}

// awaitQuiet waits until no request of this window can be in progress. A check that failed
// may have left some.
func (s *suite) awaitQuiet(ctx context.Context) {
	s.sending.Wait()
	if s.p.Slow == nil {
		return
	}
	s.mu.Lock()
	sent := s.ledger.unfinished(s.p.Slow.Body)
	wait := sent + s.slowest().Seconds() - s.history.since(time.Now())
	s.mu.Unlock()
	if sent > 0 && wait > 0 {
		pause(ctx, time.Duration(wait*float64(time.Second)))
	}
}

// shortestList is the number of items that a list of effects has at least, if there are
// that many.
const shortestList = 20

// since compares a snapshot with the effects that the ledger knows.
func (s *suite) since(taken snapshot) map[string]tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := make(map[string]tally)
	for name, n := range taken {
		t := tally{Number: n.number - s.numbers[name]}
		for _, i := range n.items {
			if !s.ledger.known[name][i.ID] {
				t.Items = append(t.Items, i)
			}
		}
		t.Partial = n.listed >= shortestList && len(t.Items) == len(n.items)
		fresh[name] = t
	}
	return fresh
}

// executed requires this many new effects in this window, and ends it.
func (s *suite) executed(ctx context.Context, want int, exchanges ...*exchange) error {
	fresh, err := s.accountFor(ctx, want)
	if err != nil {
		return err
	}
	for _, e := range s.p.Effects {
		s.mu.Lock()
		n := fresh[e.Name].size() - s.ledger.belated[e.Name]
		s.mu.Unlock()
		if n > want || n < want && !fresh[e.Name].Partial {
			return fails(exchanges, "effects %q: %d instead of %d", e.Name, n, want)
		}
	}
	return nil
}
