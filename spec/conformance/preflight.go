package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const startClause = "start"

// preflight makes sure that the profile file says what it means, because a wrong body or
// effect would make the results meaningless. Its requests are judged like all others.
func (s *suite) preflight(ctx context.Context, profileFile string) error {
	s.clause = startClause
	s.record(event{Run: s.info(profileFile)})
	for i, address := range s.addresses() {
		if err := s.responds(ctx, address, min(s.p.Patience, startTime)); err != nil {
			name := "url"
			if i > 0 {
				name = fmt.Sprintf("urls[%d]", i-1)
			}
			return fmt.Errorf("%s is dead: %w", name, err)
		}
	}
	if _, err := s.account(ctx); err != nil {
		return err
	}
	if err := s.idle(ctx); err != nil {
		return err
	}
	first, err := s.preflightBody(ctx, "operation.body", s.p.Operation.Body)
	if err != nil {
		return err
	}
	s.first, s.firstReply = request{keys: first.keys, body: s.p.Operation.Body}, first
	s.again(ctx, s.first)
	if _, err := s.account(ctx); err != nil {
		return err
	}
	changed, err := s.preflightBody(ctx, "operation.changed", s.p.Operation.Changed)
	if err != nil {
		return err
	}
	if changed.id(s) == first.id(s) {
		return fails(shown(first, changed), "operation.id: two requests with different keys have the same id %q", first.id(s))
	}
	return all(s.preflightFailure(ctx, "operation.invalid", s.p.Operation.Invalid, 0), s.preflightDeclined(ctx), s.preflightSlow(ctx))
}

// startTime is how long a server may need to respond after its start.
const startTime = 5 * time.Second

// responds waits until something responds at an address.
func (s *suite) responds(ctx context.Context, address string, limit time.Duration) error {
	for deadline := time.Now().Add(limit); ; {
		e := s.get(ctx, address+"/", nil)
		if e.err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not respond for %s: %w", address, limit, e.err)
		}
		if !pause(ctx, s.poll) {
			return ctx.Err()
		}
	}
}

// idle requires that no effect is counted while nothing is sent.
func (s *suite) idle(ctx context.Context) error {
	pause(ctx, 10*s.poll)
	if _, err := s.account(ctx); err != nil {
		return err
	}
	if foreign := s.foreign(); foreign != "" {
		return fmt.Errorf("the account is not idle, so effects cannot be assigned to requests: %s while nothing was sent (none of ours)", foreign)
	}
	return nil
}

func (s *suite) foreign() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.foreignText()
}

func (l *ledger) foreignText() string {
	var parts []string
	for _, effect := range slices.Sorted(maps.Keys(l.foreign)) {
		ids := l.foreign[effect]
		parts = append(parts, fmt.Sprintf("effects %q grew by %s", effect, strings.Join(ids[:min(len(ids), 5)], ", ")))
	}
	return strings.Join(parts, "; ")
}

// watches is how often watch looks, and for how long.
func (s *suite) watches() (most int, lasts time.Duration) {
	if s.quick {
		return 1, 20 * s.poll
	}
	return 3, 40 * s.poll
}

// watch looks for other traffic after effects that no response names.
func (s *suite) watch(ctx context.Context) {
	s.mu.Lock()
	unnamed := len(slices.DeleteFunc(slices.Clone(s.ledger.seen), func(one sighting) bool { return !one.unnamed }))
	late, settled := len(s.ledger.late), time.Duration(s.ledger.run.Settled*float64(time.Second))
	s.mu.Unlock()
	most, lasts := s.watches()
	if unnamed == 0 || unnamed == s.watched || s.looked == most {
		return
	}
	s.watched = unnamed
	s.looked++
	if late > 0 { // until none of them can have an effect
		pause(ctx, settled)
		_, _ = s.account(ctx)
	}
	pause(ctx, lasts)
	_, _ = s.account(ctx) // the next one reports an error
}

// preflightBody requires that a body succeeds and has each effect.
func (s *suite) preflightBody(ctx context.Context, name, body string) (*exchange, error) {
	e, err := s.execute(ctx, newKey(), body)
	if err != nil {
		return e, fmt.Errorf("%s: %w", name, err)
	}
	if e.status != s.p.Operation.Status {
		return e, fails(shown(e), "%s: %s instead of %d", name, e.outcome(), s.p.Operation.Status)
	}
	fresh, err := s.accountFor(ctx, 1)
	if err != nil {
		return e, err
	}
	for _, effect := range s.p.Effects {
		if fresh[effect.Name].size() > 0 {
			continue
		}
		return e, s.uncounted(ctx, name, effect, e)
	}
	return e, nil
}

// uncounted explains why an effect was not counted.
func (s *suite) uncounted(ctx context.Context, name string, of effect, e *exchange) error {
	message := fmt.Sprintf("%s has no effect %q", name, of.Name)
	if len(of.Only) == 0 {
		return fails(shown(e), "%s", message)
	}
	document, _ := decode(s.get(ctx, of.URL, of.Headers).body)
	found, _ := at(document, *of.List)
	entries, _ := found.([]any)
	i := slices.IndexFunc(entries, func(entry any) bool { return slices.Contains(scalars(entry), e.id(s)) })
	if i < 0 {
		return fails(shown(e), "%s; its list has no item with the id %s", message, e.id(s))
	}
	for _, pointer := range slices.Sorted(maps.Keys(of.Only)) {
		if value, _ := at(entries[i], pointer); fmt.Sprint(value) != of.Only[pointer] {
			return fails(shown(e), "%s: only selects %s %q, but the new item has %q", message, pointer, of.Only[pointer], fmt.Sprint(value))
		}
	}
	return fails(shown(e), "%s", message)
}

// preflightFailure requires that a body is rejected and has no effect.
func (s *suite) preflightFailure(ctx context.Context, name, body string, status int) error {
	if body == "" {
		return nil
	}
	e, err := s.settle(ctx, request{keys: []string{newKey()}, body: body}, s.p.Patience)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	switch {
	case status == 0 && !e.rejected():
		return fails(shown(e), "%s: %s instead of a rejection", name, e.outcome())
	case status != 0 && e.status != status:
		return fails(shown(e), "%s: %s instead of %d (operation.declined_status)", name, e.outcome(), status)
	}
	_, err = s.account(ctx) // an effect is a violation
	return err
}

func (s *suite) preflightDeclined(ctx context.Context) error {
	return s.preflightFailure(ctx, "operation.declined", s.p.Operation.Declined, s.p.Operation.Declines)
}

// preflightSlow requires that the slow request takes as long as the file says.
func (s *suite) preflightSlow(ctx context.Context) error {
	if s.p.Slow == nil {
		return nil
	}
	e, err := s.preflightBody(ctx, "slow.body", s.p.Slow.Body)
	if took := e.took(); err == nil && took < s.p.Slow.Lasts*9/10 {
		err = fails(shown(e), "slow.body: the response took %s, less than slow.lasts (%s)", took.Round(time.Millisecond), s.p.Slow.Lasts)
	}
	return err
}

// replayFirst sends the first key again at the end, as a client does that was offline.
func (s *suite) replayFirst(ctx context.Context) {
	if s.firstReply == nil || ctx.Err() != nil {
		return
	}
	s.clause = "IR-35"
	if s.hooks.expire != nil {
		s.clause = "IR-34" // it may have expired
	}
	s.again(ctx, s.first)
	_, _ = s.account(ctx)
}

// info describes the run for its judgement.
func (s *suite) info(profileFile string) *runInfo {
	r := &runInfo{
		Version: version, Profile: profileFile, URL: s.p.URL, Addresses: len(s.addresses()), Method: s.p.Operation.Method, Path: s.p.Operation.Path,
		KeyHeader: s.p.KeyHeader, Status: s.p.Operation.Status, Headers: make(map[string]string),
		Dialect: s.p.Dialect.differs(s.dialect), Against: s.against, Level: s.level, Quick: s.quick, Only: s.only, Seed: s.seed, Started: s.history.started.UTC(),
	}
	maps.Copy(r.Headers, s.p.Operation.Headers)
	r.Credentials = make(map[string]map[string]string)
	for who, headers := range s.p.written {
		r.Credentials[who] = make(map[string]string)
		for name, value := range headers {
			r.Credentials[who][name] = s.redact(value)
		}
	}
	r.Commands = make(map[string]string)
	for name, text := range s.p.Commands.byName() {
		if text != "" {
			r.Commands[name] = s.redact(text)
		}
	}
	for _, e := range s.p.Effects {
		r.Effects = append(r.Effects, e.Name)
	}
	for _, q := range questions() {
		if member := q.missing(s.p); member != "" {
			r.Missing = append(r.Missing, gap{q.scenario, member + " missing"})
		} else if s.quick && q.scenario == paused {
			r.Missing = append(r.Missing, gap{paused, "-quick does not pause the server"})
		}
	}
	r.Uncovered = s.p.uncovered()
	settled := time.Second
	if s.p.Slow != nil {
		settled = max(settled, 2*s.p.Slow.Lasts)
	}
	r.Settled, r.Late = settled.Seconds(), (settled + s.p.takeover()).Seconds()
	return r
}
