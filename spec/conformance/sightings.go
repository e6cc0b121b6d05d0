package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

// sighting is one violation. Those of one kind and scenario are one anomaly.
type sighting struct {
	class    class
	kind     kind
	scenario scenario
	clause   string
	subject  string   // such as "12 requests, 1 key"
	counts   []string // such as "12 charges, expected 1"
	moments  string   // of faults
	lives    []*life
	faults   []event // that happened to the keys
	witness  []string
	script   string
	size     int  // requests and faults in the witness
	unnamed  bool // the effects in excess name no key, so other traffic may have caused them
}

func (s sighting) summary() string {
	text := s.subject
	if len(s.counts) > 0 {
		text += ": " + strings.Join(s.counts, ", ")
	}
	return text + s.moments
}

// see records a violation by some keys. One that shows in several effects is one sighting.
func (l *ledger) see(s sighting, lives ...*life) {
	if s.clause, s.lives = l.clause, lives; len(lives) > 0 && !slices.ContainsFunc(lives, l.used) {
		s.clause = lives[0].clause // a late effect shows in the window of others
	}
	for i := range l.seen {
		known := &l.seen[i]
		if len(s.counts) > 0 && known.kind == s.kind && known.clause == s.clause && slices.Equal(known.lives, lives) {
			known.counts = append(known.counts, s.counts...)
			known.unnamed = known.unnamed && s.unnamed
			return
		}
	}
	s.moments = l.moments(lives)
	s.class, s.scenario = cmp.Or(s.class, safety), cmp.Or(s.scenario, once)
	for _, one := range lives {
		if found := l.scenario(one); s.kind != otherKey && strength(found) > strength(s.scenario) {
			s.scenario = found
		}
		s.size += len(one.attempts) + len(l.during([]*life{one}))
	}
	l.seen = append(l.seen, s)
}

// tooOften records a key that was executed more often than it is allowed.
func (l *ledger) tooOften(effect string, one *life, unnamed bool) {
	s := sighting{kind: executedTwice, unnamed: unnamed}
	due := one.allowed()
	if l.denied(one) {
		due = 0
	}
	if due == 0 {
		s.kind = failedYetDone
	}
	s.subject = plural(len(one.attempts), "request") + ", " + plural(one.distinctKeys(), "key")
	s.counts = []string{fmt.Sprintf("%d %s, expected %d", one.executed[effect], effect, due)}
	l.note(one, effect, ratio{one.executed[effect], due})
	l.see(s, one)
}

// excess records more effects than keys may have caused, without a name of theirs.
func (l *ledger) excess(effect string, lives []*life, got, rest int, unnamed []string) {
	requests := 0
	for _, one := range lives {
		requests += len(one.attempts) - one.current
		l.note(one, effect, ratio{got, got - rest})
	}
	s := sighting{kind: executedTwice, unnamed: true}
	if !slices.ContainsFunc(lives, func(one *life) bool { return !one.refused() }) {
		s.kind = failedYetDone
	}
	s.subject = plural(requests, "request") + ", " + plural(len(lives), "key")
	count := fmt.Sprintf("%d %s, expected at most %d", got, effect, got-rest)
	if len(unnamed) > 0 {
		count += " (no response names " + strings.Join(limit(unnamed, 5, "ids"), ", ") + ")"
	}
	s.counts = []string{count}
	l.see(s, lives...)
}

func (l *ledger) lost(effect string, one *life) {
	l.see(sighting{kind: lostEffect, subject: plural(len(one.attempts), "request") + ", a success", counts: []string{"no " + effect}}, one)
}

// responses compares the responses of a key.
func (l *ledger) responses(one *life) {
	current := one.attempts[one.current:]
	var first *attempt
	for _, a := range one.attempts {
		if a.Answer == succeeded {
			first = a
			break
		}
	}
	if first == nil {
		l.failed(one)
		return
	}
	for _, a := range current {
		if a.Answer != succeeded || a.ID == "" {
			continue
		}
		owner := l.owners[a.ID]
		certain := distinctive(a.ID) || a.Replayed
		switch {
		case owner != one && owner.account != one.account && certain:
			l.see(sighting{kind: otherTenant, scenario: repeated, subject: fmt.Sprintf("%s got %s, which %s created", a.Who, a.ID, owner.account)}, owner, one)
		case owner != one && owner.account == one.account && owner.key == one.key && certain:
			l.see(sighting{kind: wrongResponse, scenario: differing, subject: "another operation got the response of " + owner.operation}, owner, one)
		case owner.account == one.account && !owner.sameKey(one) && certain:
			l.see(sighting{kind: otherKey, scenario: owner.beside(one), subject: fmt.Sprintf("2 keys got the same response, %s", a.ID)}, owner, one)
		case a.ID == first.ID && !sameValues(a.Body, first.Body):
			l.see(sighting{kind: wrongResponse, subject: "another body got the response of the first"}, one)
		case a.ID != first.ID && len(l.run.Effects) == 0 && !l.shared[a.ID] && !l.shared[first.ID]:
			l.see(sighting{kind: executedTwice, subject: fmt.Sprintf("%s, 1 key: the responses name %s and %s", plural(len(one.attempts), "request"), first.ID, a.ID)}, one)
		default:
			continue
		}
		return
	}
}

// beside returns whether requests with two keys were in progress at the same time.
func (one *life) beside(other *life) scenario {
	for _, a := range one.attempts {
		if slices.ContainsFunc(other.attempts, func(b *attempt) bool { return a.Sent < b.Ended && b.Sent < a.Ended }) {
			return concurrent
		}
	}
	return once
}

// failed records a request that was executed, although its last response is a failure.
func (l *ledger) failed(one *life) {
	last := one.attempts[len(one.attempts)-1]
	unanswered := slices.ContainsFunc(one.attempts, func(a *attempt) bool { return a.Answer == open && a.Body == last.Body })
	if last.Answer != rejected || !unanswered {
		return
	}
	for _, effect := range l.run.Effects {
		if one.executed[effect] > 0 && (len(l.window) == 1 && l.used(one) || len(one.items[effect]) > 0) {
			l.note(one, effect, ratio{one.executed[effect], 0})
			l.see(sighting{
				kind: failedYetDone, subject: plural(len(one.attempts), "request") + ", the last response is " + itoa(last.Status),
				counts: []string{fmt.Sprintf("%d %s, expected 0", one.executed[effect], effect)},
			}, one)
		}
	}
}

// finding records what a check has seen itself.
func (l *ledger) finding(f *finding) {
	var lives []*life
	for _, n := range f.Attempts {
		if one := l.senders[n]; one != nil && !slices.Contains(lives, one) {
			lives = append(lives, one)
		}
	}
	l.see(sighting{class: f.Class, kind: f.Kind, subject: f.Message}, lives...)
	l.witness()
}

// witness describes the violations of this window, after all effects are assigned.
func (l *ledger) witness() {
	for i := range l.seen {
		if one := &l.seen[i]; one.witness == nil {
			if one.faults = l.during(one.lives); one.scenario == later {
				one.faults = l.since(one.lives[0])
			}
			one.witness, one.script = l.timeline(one.lives, one.faults), l.script(one.lives, one.faults)
		}
	}
}

func (one *life) distinctKeys() int {
	keys := make(map[string]bool)
	for _, a := range one.attempts {
		keys[strings.Join(a.Keys, ", ")] = true
	}
	return len(keys)
}

// used reports whether the key was used in this window.
func (l *ledger) used(one *life) bool { return slices.Contains(l.window, one) }

// during returns the faults that concern keys, and what ended them.
func (l *ledger) during(lives []*life) []event {
	var faults []event
	begun := make(map[string]bool) // the commands that end them
	for _, e := range l.faults {
		if begun[e.Fault.Name] || slices.ContainsFunc(lives, func(one *life) bool { return l.used(one) && l.concerns(e, one) }) {
			faults = append(faults, e)
			begun[endOf(e.Fault.Name)] = true
		}
	}
	for _, one := range lives {
		for _, e := range one.faults {
			known := slices.ContainsFunc(faults, func(other event) bool { return other.Fault == e.Fault })
			if !l.used(one) && !known {
				faults = append(faults, e)
			}
		}
	}
	return faults
}

// since returns the last kill of the server and of its store since a key was used first.
func (l *ledger) since(one *life) []event {
	var faults []event
	for _, command := range []string{"kill", "kill_store"} {
		for i := len(l.passed) - 1; i > 0; i-- {
			begun, end := l.passed[i-1], l.passed[i]
			if begun.Fault.Name == command && begun.At > one.begun {
				faults = append(faults, begun, end)
				break
			}
		}
	}
	return faults
}

// moments tells when faults happened to keys.
func (l *ledger) moments(lives []*life) string {
	begun := l.ended
	for _, one := range slices.Concat(l.window, lives) {
		if len(lives) > 0 && l.used(one) == l.used(lives[0]) {
			begun = min(begun, one.attempts[one.current].Sent)
		}
	}
	var text strings.Builder
	for _, e := range l.during(lives) {
		if name := faultNames[e.Fault.Name]; name != "" {
			fmt.Fprintf(&text, "; %s at %d ms", name, milliseconds(e.At-begun))
		}
	}
	return text.String()
}

var faultNames = map[string]string{
	"kill": "killed", "pause": "paused", "kill_store": "store killed", "interrupt": "dependency interrupted", "expire": "key expired",
}

func milliseconds(seconds float64) int { return int(seconds * 1000) }

func (one *life) name() string {
	switch first := one.attempts[0]; {
	case one.distinctKeys() > 1:
		return "one order with " + plural(one.distinctKeys(), "key")
	case first.Intent != "":
		return "key " + strings.Join(first.Keys, ", ")
	default:
		return "key " + one.key
	}
}

const (
	mostLines = 14
	mostKeys  = 6
)

// timeline shows the requests of keys, the faults between them and their effects.
func (l *ledger) timeline(lives []*life, faults []event) []string {
	type line struct {
		at   float64
		text string
	}
	var lines []line
	var keys []string
	for _, one := range lives {
		text := one.name()
		for _, effect := range l.run.Effects {
			text += fmt.Sprintf("  %s %d", effect, one.executed[effect])
			if ids := one.items[effect]; len(ids) > 0 {
				text += " (" + strings.Join(ids, ", ") + ")"
			}
		}
		keys = append(keys, text)
		for _, a := range one.attempts {
			text := "#" + itoa(a.Number)
			if len(lives) > 1 || one.distinctKeys() > 1 {
				text += " key " + abbreviated(strings.Join(a.Keys, ", "))
			}
			if a.Who != ownAccount {
				text += " " + a.Who
			}
			if !sameValues(a.Body, lives[0].attempts[0].Body) {
				text += " another body"
			}
			if a.Address != "" {
				text += " at " + a.Address
			}
			if a.Cut != "" {
				text += ", connection broken " + a.Cut
			}
			lines = append(lines, line{a.Sent, text + " → " + a.outcome()})
		}
	}
	for _, e := range faults {
		lines = append(lines, line{e.At, e.Fault.Name})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	shown := limit(keys, mostKeys, "keys")
	var rest []string
	for _, one := range lines {
		rest = append(rest, fmt.Sprintf("t%+d ms %s", milliseconds(one.at-lines[0].at), one.text))
	}
	return append(shown, limit(rest, mostLines, "lines")...)
}

// limit leaves out the middle.
func limit(lines []string, most int, what string) []string {
	if len(lines) <= most {
		return lines
	}
	omitted := fmt.Sprintf("… %d more %s", len(lines)-most+1, what)
	return slices.Concat(lines[:most/2], []string{omitted}, lines[len(lines)-most/2+1:])
}

func abbreviated(key string) string {
	if len(key) > 8 {
		return key[:8] + "…"
	}
	return key
}

func (a *attempt) outcome() string {
	if a.Status == 0 {
		return "no response"
	}
	text := itoa(a.Status)
	if a.Answer == succeeded {
		text += " " + a.ID
	}
	if a.Replayed {
		text += " replayed"
	}
	return text
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "sh") {
		what += "e"
	}
	return itoa(n) + " " + what + "s"
}

// note remembers the worst ratio of a scenario.
func (l *ledger) note(one *life, effect string, r ratio) {
	c := l.coverage(l.scenario(one))
	if worst, ok := c.worst[effect]; !ok || r.got-r.due > worst.got-worst.due {
		c.worst[effect] = r
	}
}

func (l *ledger) coverage(s scenario) *coverage {
	if l.covered[s] == nil {
		l.covered[s] = &coverage{worst: make(map[string]ratio)}
	}
	return l.covered[s]
}

// cover counts what this window has exercised.
func (l *ledger) cover() {
	faults := make(map[string]int)
	for _, e := range l.faults {
		faults[e.Fault.Name]++
	}
	exercised := make(map[scenario]bool)
	for _, one := range l.window {
		s := l.scenario(one)
		c := l.coverage(s)
		c.keys++
		c.requests += len(one.attempts) - one.current
		c.oldest = max(c.oldest, one.attempts[len(one.attempts)-1].Sent-one.begun)
		exercised[s] = true
		// A client that obeys the responses is exercised even if none allowed a new key.
		if one.attempts[0].Intent != "" && s != advised {
			l.coverage(advised).keys++
		}
	}
	for _, f := range faultScenarios {
		if exercised[f.scenario] {
			l.coverage(f.scenario).faults += faults[f.command]
		}
	}
}

func strength(s scenario) int {
	return slices.IndexFunc(questions(), func(q question) bool { return q.scenario == s })
}

// doubtful reports whether other traffic may have caused a violation.
func (l *ledger) doubtful(s sighting) bool { return s.unnamed && len(l.foreign) > 0 }

// anomalies groups the sightings that are certain.
func (l *ledger) anomalies() []anomaly {
	type cause struct {
		class    class
		kind     kind
		scenario scenario
	}
	groups := make(map[cause][]sighting)
	for _, s := range l.seen {
		if l.doubtful(s) {
			continue
		}
		of := cause{s.class, s.kind, s.scenario}
		groups[of] = append(groups[of], s)
	}
	order := slices.SortedFunc(maps.Keys(groups), func(a, b cause) int {
		return cmp.Or(cmp.Compare(severity(a.class, a.kind), severity(b.class, b.kind)), cmp.Compare(strength(a.scenario), strength(b.scenario)))
	})
	var all []anomaly
	for i, of := range order {
		group := groups[of]
		smallest := slices.MinFunc(group, func(a, b sighting) int { return cmp.Compare(a.size, b.size) })
		a := anomaly{
			Number: i + 1, Class: of.class, Kind: of.kind, Scenario: of.scenario, Count: len(group),
			Title: of.kind.title(of.scenario), Summary: smallest.summary(), Witness: smallest.witness,
			Cause: usualCause(of.kind, of.scenario),
		}
		a.Clauses = blamed(group)
		a.Replay, a.Curl = l.run.replay(smallest), smallest.script
		all = append(all, a)
	}
	return all
}

// blamed returns the clauses that the sightings violate. A clause of form is blamed only if
// no other one was checked, because its requests merely showed what another clause forbids.
func blamed(group []sighting) []string {
	var all, strict []string
	for _, s := range group {
		all = append(all, s.clause)
		if classOf(s.clause) != form {
			strict = append(strict, s.clause)
		}
	}
	if len(strict) > 0 {
		all = strict
	}
	slices.SortFunc(all, func(a, b string) int { return number(a) - number(b) })
	return slices.Compact(all)
}

// title is such as "EXECUTED TWICE after a crash".
func (k kind) title(s scenario) string {
	if k == otherTenant || k == otherKey {
		return string(k)
	}
	return string(k) + " " + s.question().text
}

// severity orders kinds: second effects first, liveness last.
func severity(c class, k kind) int {
	if c != safety {
		return 100
	}
	return slices.Index([]kind{executedTwice, failedYetDone, lostEffect, otherTenant, otherKey, wrongResponse}, k)
}

// replay is the command that repeats the clause. An older key needs what happened meanwhile:
// the faults, or the time of the whole run.
func (r *runInfo) replay(s sighting) string {
	text := os.Args[0] + " -profile " + r.Profile
	var clauses []string
	for _, e := range s.faults {
		clauses = append(clauses, e.Clause)
	}
	if s.scenario != later || len(s.faults) > 0 {
		clauses = append(clauses, s.clause)
	}
	clauses = slices.DeleteFunc(clauses, func(id string) bool { return number(id) == 0 })
	slices.SortFunc(clauses, func(a, b string) int { return number(a) - number(b) })
	if clauses = slices.Compact(clauses); len(clauses) > 0 {
		text += " -clause " + strings.Join(clauses, ",")
	}
	return text + fmt.Sprintf(" -seed %d", r.Seed)
}
