package main

import (
	"cmp"
	"fmt"
	"maps"
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
	summary  string
	witness  []string
	size     int    // requests in the witness
	body     string // of the first request
	unnamed  bool   // the effects in excess name no key, so other traffic may have caused them
}

// see records a violation by some keys of this window.
func (l *ledger) see(s sighting, lives ...*life) {
	s.clause = l.clause
	if s.class == "" {
		s.class = safety
	}
	for _, one := range lives {
		if strength(l.scenario(one)) >= strength(s.scenario) {
			s.scenario = l.scenario(one)
		}
		s.size += len(one.attempts)
		s.body = cmp.Or(s.body, one.attempts[0].Body)
	}
	s.witness = l.timeline(lives)
	l.seen = append(l.seen, s)
}

// tooOften records a key that was executed more often than it is allowed.
func (l *ledger) tooOften(effect string, one *life, unnamed bool) {
	s := sighting{kind: executedTwice, unnamed: unnamed}
	if one.refused() {
		s.kind = failedYetDone
	}
	s.summary = fmt.Sprintf("%s, %s: %d %s, expected %d%s", plural(len(one.attempts), "request"), plural(one.distinctKeys(), "key"),
		one.executed[effect], effect, one.allowed(), l.moments())
	l.note(one, effect, ratio{one.executed[effect], one.allowed()})
	l.see(s, one)
}

// excess records effects that no key of this window names.
func (l *ledger) excess(effect string, got, rest int, unnamed []string) {
	requests := 0
	for _, one := range l.window {
		requests += len(one.attempts) - one.current
		l.note(one, effect, ratio{got, got - rest})
	}
	s := sighting{kind: executedTwice, unnamed: true}
	if !slices.ContainsFunc(l.window, func(one *life) bool { return !one.refused() }) {
		s.kind = failedYetDone
	}
	s.summary = fmt.Sprintf("%s, %s: %d %s, expected at most %d%s", plural(requests, "request"), plural(len(l.window), "key"), got, effect, got-rest, l.moments())
	if len(unnamed) > 0 {
		s.summary += "; no response names " + strings.Join(unnamed[:min(len(unnamed), 5)], ", ")
	}
	l.see(s, l.window...)
}

func (l *ledger) lost(effect string, one *life) {
	l.see(sighting{kind: lostEffect, summary: fmt.Sprintf("%s: a success, but no %s%s", plural(len(one.attempts), "request"), effect, l.moments())}, one)
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
			l.see(sighting{kind: otherTenant, summary: fmt.Sprintf("%s got %s, which %s created", a.Who, a.ID, owner.account)}, owner, one)
		case owner != one && owner.account == one.account && owner.key == one.key && certain:
			l.see(sighting{kind: wrongResponse, scenario: differing, summary: "another operation got the response of " + owner.operation}, owner, one)
		case a.ID == first.ID && !sameValues(a.Body, first.Body):
			l.see(sighting{kind: wrongResponse, summary: "another body got the response of the first"}, one)
		case a.ID != first.ID && len(l.run.Effects) == 0:
			l.see(sighting{kind: executedTwice, summary: fmt.Sprintf("%s, 1 key: the responses name %s and %s", plural(len(one.attempts), "request"), first.ID, a.ID)}, one)
		default:
			continue
		}
		return
	}
}

// failed records a request that was executed, although its last response is a failure.
func (l *ledger) failed(one *life) {
	last := one.attempts[len(one.attempts)-1]
	unanswered := slices.ContainsFunc(one.attempts, func(a *attempt) bool { return a.Answer == open && a.Body == last.Body })
	if last.Answer != rejected || !unanswered {
		return
	}
	for _, effect := range l.run.Effects {
		if one.executed[effect] > 0 && (len(l.window) == 1 || len(one.items[effect]) > 0) {
			l.note(one, effect, ratio{one.executed[effect], 0})
			l.see(sighting{kind: failedYetDone, summary: fmt.Sprintf("%s: %d %s, and %d for the client%s",
				plural(len(one.attempts), "request"), one.executed[effect], effect, last.Status, l.moments())}, one)
			return
		}
	}
}

// finding records what a check has seen itself.
func (l *ledger) finding(e event) {
	var lives []*life
	for _, one := range l.window {
		if slices.ContainsFunc(one.attempts, func(a *attempt) bool { return slices.Contains(e.Finding.Attempts, a.Number) }) {
			lives = append(lives, one)
		}
	}
	l.see(sighting{class: e.Finding.Class, kind: e.Finding.Kind, summary: e.Finding.Message}, lives...)
}

func (one *life) distinctKeys() int {
	keys := make(map[string]bool)
	for _, a := range one.attempts {
		keys[strings.Join(a.Keys, ", ")] = true
	}
	return len(keys)
}

// moments tells when faults happened in this window.
func (l *ledger) moments() string {
	var text strings.Builder
	for _, e := range l.faults {
		if name := faultNames[e.Fault.Name]; name != "" && len(l.window) > 0 {
			fmt.Fprintf(&text, "; %s at %d ms", name, milliseconds(e.At-l.begun()))
		}
	}
	return text.String()
}

var faultNames = map[string]string{
	"kill": "killed", "pause": "paused", "kill_store": "store killed", "interrupt": "dependency interrupted", "expire": "key expired",
}

// begun is the time of the first request of this window.
func (l *ledger) begun() float64 {
	begun := l.ended
	for _, one := range l.window {
		begun = min(begun, one.attempts[one.current].Sent)
	}
	return begun
}

func milliseconds(seconds float64) int { return int(seconds * 1000) }

const (
	mostLines = 14
	mostKeys  = 6
)

// timeline shows the requests of keys, the faults between them and their effects.
func (l *ledger) timeline(lives []*life) []string {
	type line struct {
		at   float64
		text string
	}
	var lines []line
	var keys []string
	for _, one := range lives {
		text := "key " + one.key
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
			if a.Cut != "" {
				text += ", connection broken " + a.Cut
			}
			lines = append(lines, line{a.Sent, text + " → " + a.outcome()})
		}
	}
	for _, e := range l.faults {
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

// anomalies groups the sightings. Those that other traffic may have caused do not count if
// there was some.
func (l *ledger) anomalies() []anomaly {
	type cause struct {
		class    class
		kind     kind
		scenario scenario
	}
	groups := make(map[cause][]sighting)
	for _, s := range l.seen {
		if s.unnamed && len(l.foreign) > 0 {
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
			Title: strings.TrimSpace(string(of.kind) + " " + of.scenario.question().text), Summary: smallest.summary, Witness: smallest.witness,
			Cause: usualCause(of.kind, of.scenario),
		}
		for _, s := range group {
			if !slices.Contains(a.Clauses, s.clause) {
				a.Clauses = append(a.Clauses, s.clause)
			}
		}
		slices.SortFunc(a.Clauses, func(a, b string) int { return number(a) - number(b) })
		a.Replay, a.Curl = l.run.replay(smallest), l.run.curl(smallest)
		all = append(all, a)
	}
	return all
}

// severity orders kinds: second effects first, liveness last.
func severity(c class, k kind) int {
	if c != safety {
		return 100
	}
	return slices.Index([]kind{executedTwice, failedYetDone, lostEffect, otherTenant, wrongResponse}, k)
}

// replay is the command that repeats the clause.
func (r *runInfo) replay(s sighting) string {
	text := "conformance -profile " + r.Profile
	if number(s.clause) > 0 {
		text += " -clause " + s.clause
	}
	return text + fmt.Sprintf(" -seed %d", r.Seed)
}

// curl sends the request of a violation by hand, with a new key.
func (r *runInfo) curl(s sighting) string {
	if s.body == "" {
		return ""
	}
	text := "curl -X " + r.Method
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		text += " -H " + shellQuoted(name+": "+r.Headers[name])
	}
	text += fmt.Sprintf(` -H "%s: $KEY" -d %s %s`, r.KeyHeader, shellQuoted(s.body), shellQuoted(r.URL+r.Path))
	between := "; "
	if s.scenario == concurrent {
		between = " & "
	}
	return "KEY=$(uuidgen); " + text + between + text
}

func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
