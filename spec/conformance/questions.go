package main

import (
	"slices"
)

// scenario is what happened to a key while it was in use. It is a column of the matrix.
type scenario string

const (
	once       scenario = "one"    // one request
	repeated   scenario = "repeat" // the same request again
	differing  scenario = "change" // another body with the same key
	concurrent scenario = "race"
	cutOff     scenario = "cut"     // a connection broke
	crashed    scenario = "crash"   // the server was killed
	replicated scenario = "replica" // requests to several addresses
	paused     scenario = "pause"   // the server was stopped for a time
	storeLost  scenario = "store"   // the server's store was killed
	outage     scenario = "outage"  // a dependency was interrupted
	expiry     scenario = "expiry"  // commands.expire
	later      scenario = "later"   // a key of an earlier clause, at the end or with -recheck
	advised    scenario = "client"  // a client that obeys the server's verdicts
)

// question is what the report answers about safety.
type question struct {
	scenario scenario
	text     string                  // after "executed twice"
	cause    string                  // the usual one
	missing  func(p *profile) string // the member without which it is not exercised, or ""
}

// questions are in the order of the matrix, which is that of increasing effort.
func questions() []question {
	none := func(*profile) string { return "" }
	command := func(text func(c commands) string, member string) func(*profile) string {
		return func(p *profile) string {
			if text(p.Commands) == "" {
				return member
			}
			return ""
		}
	}
	return []question{
		{once, "by a single request", "the handler causes the effect twice", none},
		{repeated, "when the request is repeated", "the response is not stored, or is stored under another key", none},
		{differing, "with a changed body", "the request is executed before it is compared with the first one", none},
		{concurrent, "by concurrent duplicates", "the key is looked up before it is stored; take it atomically, such as by a unique constraint", none},
		{cutOff, "when the connection breaks", "the key is released when its client is gone, although the work continues", none},
		{advised, "by a client that obeys the responses", "an error allows a new key although the first one was executed", none},
		{
			replicated, "by duplicates at different addresses", "the lock or the response is in the process, not in a store that all processes share",
			func(p *profile) string {
				if len(p.URLs) == 0 {
					return "urls"
				}
				return ""
			},
		},
		{
			crashed, "after a crash", "the effect happens before its identifier is stored, or the keys are only in memory",
			command(func(c commands) string { return c.Kill }, "commands.kill and commands.start"),
		},
		{
			paused, "after a pause", "a lock expired while its holder was stopped, and the holder went on; only an identifier that is derived from the key prevents its effect",
			command(func(c commands) string { return c.Pause }, "commands.pause and commands.resume"),
		},
		{
			storeLost, "when its store is killed", "the request is executed although its key cannot be stored, or the store forgets what it has acknowledged",
			command(func(c commands) string { return c.KillStore }, "commands.kill_store and commands.start_store"),
		},
		{
			outage, "when a dependency fails", "a failed attempt starts again and does not find the effect of the first one",
			command(func(c commands) string { return c.Interrupt }, "commands.interrupt and commands.restore"),
		},
		{
			expiry, "after the lifetime of the key", "a deleted key is a new one; keep a record that it was used",
			command(func(c commands) string { return c.Expire }, "commands.expire"),
		},
		{later, "when an older key is used again", "the lifetime of the key ended before its retry, or the keys are only in memory and the server was restarted", none},
	}
}

// uncovered names what no request can show with this profile file.
func (p *profile) uncovered() []string {
	var names []string
	if p.Operation.Query == "" {
		names = append(names, "a query parameter (operation.query)")
	}
	if len(p.URLs) == 0 {
		names = append(names, "a second process (urls)")
	}
	if len(reordered(p.Operation.Body)) == 0 {
		names = append(names, "the order of a list (operation.body has none)")
	}
	if !slices.ContainsFunc(places(p.Operation.Body), func(one place) bool { _, ok := one.value.(bool); return ok }) {
		names = append(names, "false or absent (operation.body has no truth value)")
	}
	return names
}

// question returns the question of a scenario.
func (s scenario) question() question {
	all := questions()
	return all[slices.IndexFunc(all, func(q question) bool { return q.scenario == s })]
}

// usualCause says what is wrong with most servers that have this anomaly.
func usualCause(k kind, s scenario) string {
	switch k {
	case failedYetDone:
		return "the failure is answered while the effect can still happen; make it impossible first"
	case lostEffect:
		return "the response is sent before the effect is committed"
	case wrongResponse:
		return "the key is not compared with the whole request"
	case otherKey:
		if s == concurrent {
			return "requests share the variable that holds the response"
		}
		return "keys are cut, decoded or compared without some characters, or only the last response is kept"
	case otherTenant:
		return "the key is looked up without its account"
	case blocked:
		return "a lock has no end, or a temporary failure is stored as if it were final"
	default:
		return s.question().cause
	}
}

// scenario is what happened to a key in this window. The strongest cause counts.
func (l *ledger) scenario(one *life) scenario {
	if one.was != "" && !l.used(one) {
		return one.was
	}
	attempts := one.attempts[one.current:]
	for _, f := range faultScenarios {
		if slices.ContainsFunc(l.faults, func(e event) bool { return e.Fault.Name == f.command && l.concerns(e, one) }) {
			return f.scenario
		}
	}
	overlap, cut, other, addresses := false, false, false, false
	for i, a := range attempts {
		cut = cut || a.Cut != ""
		addresses = addresses || a.Address != attempts[0].Address
		other = other || !sameValues(a.Body, one.attempts[0].Body)
		for _, b := range attempts[:i] {
			overlap = overlap || a.Sent < b.Ended
		}
	}
	switch {
	case one.distinctKeys() > 1:
		return advised
	case cut:
		return cutOff
	case addresses:
		return replicated
	case overlap:
		return concurrent
	case one.current > 0 && l.clause != one.clause:
		return later
	case other:
		return differing
	case len(one.attempts) > 1:
		return repeated
	default:
		return once
	}
}

// concerns reports whether a fault happened while the key was in use.
func (l *ledger) concerns(e event, one *life) bool {
	attempts := one.attempts[one.current:]
	if len(attempts) == 0 || e.Fault.Key != "" && !slices.Contains(attempts[0].Keys, e.Fault.Key) {
		return false
	}
	return e.At <= attempts[len(attempts)-1].Ended && l.until(e, endOf(e.Fault.Name)) >= attempts[0].Sent
}

// endOf returns the command that ends a fault, or "".
func endOf(command string) string {
	for _, f := range faultScenarios {
		if f.command == command {
			return f.end
		}
	}
	return ""
}

// until is when a fault ended.
func (l *ledger) until(begun event, end string) float64 {
	for _, e := range l.faults {
		if e.Fault.Name == end && e.At >= begun.At {
			return e.At
		}
	}
	return begun.At
}

// faultScenarios are in the order of their strength, each with the command that ends it.
var faultScenarios = []struct {
	command, end string
	scenario     scenario
}{
	{"expire", "", expiry},
	{"kill", "start", crashed},
	{"pause", "resume", paused},
	{"kill_store", "start_store", storeLost},
	{"interrupt", "restore", outage},
}
