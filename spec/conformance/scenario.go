package main

import "slices"

// scenario is what happened to a key in this window. The strongest cause counts.
func (l *ledger) scenario(one *life) scenario {
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
	end := ""
	for _, f := range faultScenarios {
		if f.command == e.Fault.Name {
			end = f.end
		}
	}
	return e.At <= attempts[len(attempts)-1].Ended && l.until(e, end) >= attempts[0].Sent
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
