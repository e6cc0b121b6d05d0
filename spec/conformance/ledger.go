package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// ledger judges safety. It reads the events of a run, or of a history, and knows how often
// each key may have been executed: once, and never if all its requests were rejected. The
// effects are counted in windows, so that no check can forget to count them.
type ledger struct {
	run     runInfo
	lives   map[identity]*life
	clause  string           // of the current window
	owners  map[string]*life // by the id of a response
	named   map[string]*life // by the values of successes
	denials map[string]*life // by the ids in failures; nil: of several keys
	valid   map[string]bool  // bodies that have succeeded
	shared  map[string]bool  // values in responses to several keys, so that they name none
	keys    map[string][]*life
	senders map[int]*life  // by the number of an attempt
	window  []*life        // used since the last count
	faults  []event        // since the last count
	passed  []event        // faults of earlier windows
	late    []*life        // of earlier windows, which the server may still be executing
	belated map[string]int // effects in the last window that keys of earlier ones caused
	arrived []*life        // those keys
	known   map[string]map[string]bool
	counted bool // there was a first count
	ended   float64
	early   string // why the run ended early

	requests   int                 // that were sent
	executions map[string]int      // of an effect
	foreign    map[string][]string // effect to ids that no request has caused
	// Whether the items of an effect have the keys of their requests.
	withKey    map[string]int
	withoutKey map[string]bool
	seen       []sighting
	covered    map[scenario]*coverage
}

// identity is what a server may take for one key. Servers differ in whether operations
// share keys and whether the quoted form is the same key, so neither is assumed.
type identity struct{ account, operation, key string }

// life is all that happened to one key.
type life struct {
	identity
	clause    string // in which it was used first
	begun     float64
	attempts  []*attempt // all, by the time of sending
	current   int        // the number of attempts before this window
	disturbed bool       // by a fault in its window
	outage    bool       // a dependency was interrupted meanwhile
	was       scenario   // of its last window
	faults    []event    // of its last window
	executed  map[string]int
	assumed   map[string]bool     // it may have caused an effect that it shares with other candidates
	items     map[string][]string // ids by effect
}

// coverage is what a scenario has exercised.
type coverage struct {
	keys, requests, faults int
	worst                  map[string]ratio // effects
	oldest                 float64          // seconds between the first and the last use of a key
}

// ratio is executions and those that were due.
type ratio struct{ got, due int }

func newLedger() *ledger {
	return &ledger{
		lives: make(map[identity]*life), owners: make(map[string]*life), named: make(map[string]*life), denials: make(map[string]*life), valid: make(map[string]bool), shared: make(map[string]bool), executions: make(map[string]int), keys: make(map[string][]*life), senders: make(map[int]*life), known: make(map[string]map[string]bool),
		foreign: make(map[string][]string), withKey: make(map[string]int), withoutKey: make(map[string]bool), covered: make(map[scenario]*coverage),
	}
}

func (l *ledger) apply(e event) {
	l.clause = e.Clause
	switch {
	case e.Run != nil:
		l.run = *e.Run
	case e.Attempt != nil:
		l.requests++
		l.attempt(e.Clause, e.Attempt)
	case e.Fault != nil:
		l.faults = append(l.faults, e)
	case e.Finding != nil:
		l.finding(e.Finding)
	case e.Effects != nil:
		l.count(e)
	case e.Ended != "":
		l.early = e.Ended
	}
	l.ended = max(l.ended, e.At)
}

func (l *ledger) attempt(clause string, a *attempt) {
	if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, a.Method) {
		return
	}
	id := identity{a.Account, a.Method + " " + a.operation(), strings.Join(a.Keys, ", ")}
	switch {
	case a.Intent != "":
		id.key = a.Intent
	case len(a.Keys) == 0:
		id.key = "none, request " + itoa(a.Number)
	}
	one := l.lives[id]
	if one == nil {
		one = &life{identity: id, clause: clause, begun: a.Sent, executed: make(map[string]int), assumed: make(map[string]bool), items: make(map[string][]string)}
		l.lives[id] = one
	}
	if !l.used(one) {
		one.current = len(one.attempts)
		l.window = append(l.window, one)
	}
	one.attempts = append(one.attempts, a)
	slices.SortStableFunc(one.attempts[one.current:], func(a, b *attempt) int { return cmp.Compare(a.Number, b.Number) })
	l.senders[a.Number] = one
	for _, key := range a.Keys {
		if !slices.Contains(l.keys[key], one) {
			l.keys[key] = append(l.keys[key], one)
		}
	}
	if a.Answer == rejected {
		l.refuse(a, one)
	}
	if a.Answer != succeeded {
		return
	}
	l.valid[a.Body] = true
	if a.ID != "" {
		l.claim(l.owners, a.ID, one)
	}
	for _, value := range values(a.Response) {
		l.claim(l.named, value, one)
	}
}

// claim remembers the first key with a value in its response.
func (l *ledger) claim(owners map[string]*life, value string, one *life) {
	switch first := owners[value]; {
	case first == nil:
		owners[value] = one
	case first.account == one.account && !first.sameKey(one):
		l.shared[value] = true
	}
}

// identifier matches what may be the id of an order. Times and texts are none.
var identifier = regexp.MustCompile(`^[\w-]*([A-Za-z][\w-]*\d|\d[\w-]*[A-Za-z])[\w-]*$`)

// refuse remembers the ids in a failure, which may name what the request caused nevertheless.
func (l *ledger) refuse(a *attempt, one *life) {
	for _, value := range values(a.Response) {
		if !distinctive(value) || !identifier.MatchString(value) || strings.Contains(a.Body, value) {
			continue
		}
		if first, known := l.denials[value]; known && first != one {
			l.denials[value] = nil
			continue
		}
		l.denials[value] = one
	}
}

// sameKey reports whether two keys are equal, or one is the quoted form of the other.
func (one *life) sameKey(other *life) bool {
	plain := func(key string) string {
		if len(key) > 1 && key[0] == '"' && key[len(key)-1] == '"' {
			return strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(key[1 : len(key)-1])
		}
		return key
	}
	return plain(one.key) == plain(other.key)
}

// operation is the path without the query.
func (a *attempt) operation() string {
	path, _, _ := strings.Cut(a.Path, "?")
	return path
}

func (one *life) any(what answered) bool {
	return slices.ContainsFunc(one.attempts, func(a *attempt) bool { return a.Answer == what })
}

// refused reports whether all requests with the key were rejected for good.
func (one *life) refused() bool {
	return !slices.ContainsFunc(one.attempts, func(a *attempt) bool { return a.Answer != rejected })
}

// allowed is how often the key may have been executed.
func (one *life) allowed() int {
	if one.refused() {
		return 0
	}
	return 1
}

// own reports whether the effects of the key are certainly counted. Those of another account
// may be invisible, and another operation may have others.
func (l *ledger) own(one *life) bool {
	return one.account == ownAccount && one.operation == l.run.Method+" "+l.run.Path
}

// count ends a window.
func (l *ledger) count(e event) {
	if !l.counted {
		l.counted = true
		l.learn(e)
		l.end(e)
		return
	}
	slices.SortStableFunc(l.window, func(a, b *life) int { return cmp.Compare(a.begun, b.begun) })
	l.belated, l.arrived = make(map[string]int), nil
	for _, effect := range l.run.Effects {
		l.executions[effect] += e.Effects[effect].size()
		l.judge(effect, e.Effects[effect])
	}
	for _, one := range l.window {
		l.responses(one)
	}
	for i, one := range l.arrived {
		if !slices.Contains(l.arrived[:i], one) && !one.any(succeeded) {
			l.failed(one)
		}
	}
	l.witness()
	l.cover()
	l.learn(e)
	l.end(e)
}

func (l *ledger) learn(e event) {
	for effect, t := range e.Effects {
		if l.known[effect] == nil {
			l.known[effect] = make(map[string]bool)
		}
		for _, i := range t.Items {
			l.known[effect][i.ID] = true
		}
	}
}

// end keeps the keys that may still be executed. After that time an effect in excess belongs
// to the window that shows it; otherwise one unanswered request could excuse any later one.
func (l *ledger) end(e event) {
	for _, one := range l.window {
		one.disturbed = one.disturbed || len(l.faults) > 0
		one.outage = l.outage(one)
		one.was, one.faults = l.scenario(one), l.during([]*life{one})
	}
	pending := l.late
	l.late = nil
	for _, one := range append(pending, l.window...) {
		if e.At < l.finished(one) && !slices.Contains(l.late, one) {
			l.late = append(l.late, one)
		}
	}
	l.passed = append(l.passed, l.faults...)
	l.window, l.faults = nil, nil
}

// done reports whether the key may have been executed.
func (l *ledger) done(one *life) bool {
	return slices.ContainsFunc(l.run.Effects, one.caused)
}

// open reports whether the key may still be executed for the first time, because a request
// has no response, or a temporary one.
func (l *ledger) open(one *life) bool {
	return !l.done(one) && !one.any(succeeded) && one.any(open) && !l.denied(one)
}

// denied reports whether a valid request got a failure while a dependency was interrupted. Its
// effect may come after the dependency is restored, at any time.
func (l *ledger) denied(one *life) bool {
	last := one.attempts[len(one.attempts)-1]
	return last.Answer == rejected && l.valid[last.Body] && l.own(one) && !one.any(succeeded) && l.outage(one)
}

// threatens reports whether an effect of a denied key may still come.
func (l *ledger) threatens(one *life) bool {
	return l.denied(one) && slices.ContainsFunc(l.run.Effects, func(effect string) bool { return !one.caused(effect) })
}

// caused reports whether the key has, or may have, caused an effect.
func (one *life) caused(effect string) bool { return one.executed[effect] > 0 || one.assumed[effect] }

func (l *ledger) outage(one *life) bool {
	return one.outage || slices.ContainsFunc(l.faults, func(e event) bool { return e.Fault.Name == "interrupt" && l.concerns(e, one) })
}

// finished is when no request with the key can be in progress any more, or 0. After a fault,
// the server may continue an open key. A server without a lock may execute a request whose
// connection broke even after a later one with the key has succeeded.
func (l *ledger) finished(one *life) float64 {
	ended := one.attempts[len(one.attempts)-1].Ended
	switch {
	case l.threatens(one):
		return math.Inf(1)
	case l.open(one) && (one.disturbed || l.run.Settled == 0):
		return ended + l.run.Late
	case l.open(one), one.unanswered():
		return ended + l.run.Settled
	default:
		return 0
	}
}

func (one *life) unanswered() bool {
	return slices.ContainsFunc(one.attempts, func(a *attempt) bool { return a.Status == 0 && a.Cut != cutBefore.String() })
}

// stragglers returns the keys of earlier windows with a request that has no response and may
// still be executed, so an effect in excess is not certainly that of a key of this window.
func (l *ledger) stragglers() []*life {
	var lives []*life
	for _, one := range l.late {
		if one.unanswered() && !l.used(one) {
			lives = append(lives, one)
		}
	}
	return lives
}

// settled is when no key of an earlier window can be executed for the first time any more, or 0.
func (l *ledger) settled() float64 {
	var at float64
	for _, one := range l.late {
		if l.open(one) {
			at = max(at, l.finished(one))
		}
	}
	return at
}

// due returns the own keys of this window that have a success, but no effect yet. A success
// that another key got first promises no other effect.
func (l *ledger) due(effect string) []*life {
	var due []*life
	for _, one := range l.window {
		if !l.own(one) || one.current > 0 || one.executed[effect] > 0 || !one.any(succeeded) {
			continue
		}
		if owner := l.owners[one.response()]; owner == nil || owner.sameKey(one) {
			due = append(due, one)
		}
	}
	return due
}

// missing reports whether effects of this window are still to come, or may come although a
// failure was answered.
func (l *ledger) missing(effects map[string]tally) bool {
	if !l.counted {
		return false
	}
	late := len(l.run.Effects) > 0 && slices.ContainsFunc(l.window, l.threatens)
	for _, effect := range l.run.Effects {
		t, due := effects[effect], responses(l.due(effect))
		if t.size() < due && !t.Partial {
			return true
		}
		late = late && t.size() == due && !t.Partial
	}
	return late
}

// unfinished is when the last request of this window was sent that has the body and no final
// response, or 0.
func (l *ledger) unfinished(body string) float64 {
	var sent float64
	for _, one := range l.window {
		for _, a := range one.attempts[one.current:] {
			if !one.any(succeeded) && !one.refused() && a.Body == body {
				sent = max(sent, a.Sent)
			}
		}
	}
	return sent
}

// judge compares the new effects with the keys that were used.
func (l *ledger) judge(effect string, t tally) {
	candidates := slices.Concat(l.window, l.stragglers())
	if len(l.window) == 0 {
		candidates = l.late
	}
	if len(candidates) == 0 && t.Number > 0 {
		l.foreign[effect] = append(l.foreign[effect], itoa(t.Number)+" without an id")
		return
	}
	var unnamed []string
	exceeded := make(map[*life]bool)
	due := l.due(effect)
	for _, i := range t.Items {
		one, named := l.owner(effect, i)
		switch {
		case one == nil && l.withKey[effect] >= mostlyNamed && !l.withoutKey[effect]:
			l.foreign[effect] = append(l.foreign[effect], i.ID)
			continue
		case one == nil:
			unnamed = append(unnamed, i.ID)
			l.withoutKey[effect] = true
			continue
		case named:
			l.withKey[effect]++
		default:
			l.withoutKey[effect] = true
		}
		one.executed[effect]++
		one.items[effect] = append(one.items[effect], i.ID)
		l.arrives(effect, one)
		if one.executed[effect] > one.allowed() {
			exceeded[one] = true
		}
	}
	for one := range exceeded {
		l.tooOften(effect, one, len(unnamed)+t.Number > 0)
	}
	rest := len(unnamed) + t.Number
	if rest > 0 && len(candidates) == 0 {
		l.foreign[effect] = append(l.foreign[effect], unnamed...)
		return
	}
	rest -= l.assign(effect, due, rest, unnamed)
	rest -= l.assign(effect, l.possible(effect), rest, unnamed)
	rest -= l.belie(effect, rest, unnamed)
	switch {
	case rest > 0 && len(candidates) == 1:
		one := candidates[0]
		one.executed[effect] += rest
		one.items[effect] = append(one.items[effect], unnamed...)
		l.tooOften(effect, one, len(unnamed)+t.Number > 0)
	case rest > 0:
		l.excess(effect, candidates, t.size(), rest, unnamed)
	case t.size() < responses(due) && !t.Partial:
		for _, one := range due {
			if one.executed[effect] == 0 {
				l.lost(effect, one)
			}
		}
	}
}

// responses counts the different successes of keys: two forms of one key have the same.
func responses(lives []*life) int {
	ids := make(map[string]bool)
	for _, one := range lives {
		ids[one.response()] = true
	}
	return len(ids)
}

// possible returns the keys that may have been executed without a success, those of this
// window first.
func (l *ledger) possible(effect string) []*life {
	var lives []*life
	for _, one := range slices.Concat(l.window, slices.DeleteFunc(slices.Clone(l.late), l.denied)) {
		if one.executed[effect] < one.allowed() && !one.assumed[effect] && !slices.Contains(lives, one) {
			lives = append(lives, one)
		}
	}
	return lives
}

// assign gives one effect without a name to each key, if there are enough.
func (l *ledger) assign(effect string, lives []*life, rest int, unnamed []string) int {
	given := 0
	for _, one := range lives {
		if given == rest {
			break
		}
		if one.executed[effect] > 0 {
			continue
		}
		// With several candidates it is unknown whose effect it is.
		if certain := one.any(succeeded) || len(lives) == 1; certain {
			one.executed[effect]++
			if len(lives) == 1 && len(unnamed) == 1 {
				one.items[effect] = append(one.items[effect], unnamed[0])
			}
		} else {
			one.assumed[effect] = true
		}
		l.arrives(effect, one)
		given++
	}
	return given
}

// arrives notes an effect that a key of an earlier window has caused.
func (l *ledger) arrives(effect string, one *life) {
	if !l.used(one) {
		l.belated[effect]++
		l.arrived = append(l.arrived, one)
	}
}

// belie gives the rest to keys that got a failure, because theirs may come at any time.
func (l *ledger) belie(effect string, rest int, unnamed []string) int {
	given := 0
	for _, one := range slices.Concat(l.window, l.late) {
		if given == rest || one.caused(effect) || !l.denied(one) {
			continue
		}
		if rest == len(unnamed) {
			one.items[effect] = append(one.items[effect], unnamed[given])
		}
		one.executed[effect]++
		l.arrives(effect, one)
		given++
		l.tooOften(effect, one, true)
	}
	return given
}

// response is the id of the first success.
func (one *life) response() string {
	for _, a := range one.attempts {
		if a.Answer == succeeded {
			return a.ID
		}
	}
	return ""
}

// owner returns the key that certainly caused an item, because the item has the key or the
// id of its response, or the response has the item's id. named reports whether it has a key.
func (l *ledger) owner(effect string, i item) (one *life, named bool) {
	for _, value := range i.Values {
		if lives := l.keys[value]; distinctive(value) && len(lives) > 0 {
			return unexecuted(effect, lives), true
		}
	}
	for _, value := range append([]string{i.ID}, i.Values...) {
		if one := l.owners[value]; distinctive(value) && one != nil && !l.shared[value] {
			return one, false
		}
	}
	if one := l.named[i.ID]; distinctive(i.ID) && one != nil && !l.shared[i.ID] {
		return one, false
	}
	for _, value := range append([]string{i.ID}, i.Values...) {
		if one := l.denials[value]; one != nil && l.named[value] == nil {
			return one, false
		}
	}
	return nil, false
}

// unexecuted returns the first key without this effect: two accounts may use the same key.
func unexecuted(effect string, lives []*life) *life {
	if i := slices.IndexFunc(lives, func(one *life) bool { return one.executed[effect] < one.allowed() }); i >= 0 {
		return lives[i]
	}
	return lives[0]
}

// mostlyNamed is the number of items with a key after which an item without one is not ours.
const mostlyNamed = 3

const shortestDistinctive = 8

// distinctive reports whether a text is hardly the id of two things.
func distinctive(text string) bool { return len(text) >= shortestDistinctive }

// values returns the texts and numbers of a JSON document.
func values(text string) []string {
	value, err := decode([]byte(text))
	if err != nil {
		return nil
	}
	return scalars(value)
}

func scalars(value any) []string {
	var found []string
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			found = append(found, scalars(value[name])...)
		}
	case []any:
		for _, part := range value {
			found = append(found, scalars(part)...)
		}
	case string:
		found = append(found, value)
	case json.Number:
		found = append(found, value.String())
	}
	return found
}

// sameValues reports whether two bodies have equal values, so that they are one request.
func sameValues(a, b string) bool { return a == b || canonical(a) == canonical(b) }

// canonical is a JSON document in one form, or the text itself.
func canonical(text string) string {
	var value any
	if json.Unmarshal([]byte(text), &value) != nil {
		return text
	}
	one, _ := json.Marshal(value) // it was decoded from JSON
	return string(one)
}
