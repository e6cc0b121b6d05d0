package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

func checkAccounts(ctx context.Context, s *suite) error { // IR-6
	if s.p.SecondAccount == nil {
		return notChecked("second_account is missing")
	}
	for _, body := range []string{s.p.Operation.Body, s.p.Operation.Changed} {
		key := newKey()
		first, err := s.execute(ctx, key, s.p.Operation.Body)
		if err != nil {
			return err
		}
		second, err := s.settle(ctx, request{keys: []string{key}, body: body, credential: s.p.SecondAccount}, s.p.Patience)
		switch {
		case err != nil:
			return err
		case !second.success(s) || second.same(s, first):
			return fails(shown(first, second), "the key of one account is known to another one, which got %s", second.outcome())
		}
		again := s.again(ctx, request{keys: []string{key}, body: s.p.Operation.Body})
		if !again.same(s, first) {
			return fails(shown(first, again), "the same key of another account changed the response")
		}
	}
	return nil
}

func checkSharedKeys(ctx context.Context, s *suite) error { // IR-7
	if s.p.SecondCredential == nil && s.p.SecondOperation == nil {
		return notChecked("second_credential and second_operation are missing")
	}
	key := newKey()
	first, err := s.execute(ctx, key, s.p.Operation.Body)
	if err != nil {
		return err
	}
	var errs []error
	if s.p.SecondCredential != nil {
		s.covers("another credential")
		again := s.again(ctx, request{keys: []string{key}, body: s.p.Operation.Body, credential: s.p.SecondCredential})
		if !again.same(s, first) {
			errs = append(errs, fails(shown(first, again), "the second credential of the account does not find the key: it got %s", again.outcome()))
		}
	}
	if s.p.SecondOperation != nil {
		s.covers("another operation")
		other := s.send(ctx, request{keys: []string{key}, other: s.p.SecondOperation})
		errs = append(errs, s.hasStatus(reused, "the key of another operation", other, first))
	}
	return all(errs...)
}

func checkFingerprint(ctx context.Context, s *suite) error { // IR-8
	if _, err := s.account(ctx); err != nil {
		return err
	}
	body := s.p.Operation.Body
	key := newKey()
	first, err := s.execute(ctx, key, body)
	if err != nil {
		return err
	}
	changed := append([]variant{{"changed", s.p.Operation.Changed}}, changedValues(body)...)
	retyped, removed := retypedValues(body), removedMembers(body)
	errs := []error{s.others(ctx, first, slices.Concat(changed, retyped, removed))}
	s.covers("%s", plural(len(changed), "changed value"))
	s.covers("%s", plural(len(retyped), "changed type"))
	s.covers("%s", plural(len(removed), "removed member"))
	for _, p := range append(reordered(body), omitted(body)...) {
		accepted, err := s.settle(ctx, request{keys: []string{newKey()}, body: p.body}, s.p.Patience)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !accepted.success(s):
			s.covers("not %s, because the server rejects the body that it needs", p.name)
		default:
			s.covers("%s", p.name)
			errs = append(errs, s.others(ctx, accepted, p.others))
		}
	}
	if s.p.SecondOperation != nil {
		if e := s.send(ctx, request{keys: []string{key}, other: s.p.SecondOperation}); e.same(s, first) {
			errs = append(errs, fails(shown(first, e), "another operation got the stored response"))
		}
	}
	return all(errs...)
}

// others requires that other bodies with a used key are rejected.
func (s *suite) others(ctx context.Context, first *exchange, bodies []variant) error {
	var errs []error
	for _, v := range bodies {
		if e := s.send(ctx, request{keys: first.keys, body: v.body}); !e.rejected() {
			errs = append(errs, fails(shown(first, e), "another value (%s) got %s instead of a rejection", v.name, e.outcome()))
		}
	}
	return all(errs...)
}

// comparesRequests reports whether a changed body with a used key is rejected. If not, a
// check of what belongs to the same request proves nothing.
func (s *suite) comparesRequests(ctx context.Context, key string) error {
	if e := s.send(ctx, request{keys: []string{key}, body: s.p.Operation.Changed}); !e.rejected() {
		return notChecked("a changed body is not rejected, so the server compares no requests (IR-13)")
	}
	return nil
}

func checkSerialisation(ctx context.Context, s *suite) error { // IR-9
	variants := serialisations(s.p.Operation.Body)
	if len(variants) == 0 {
		return notChecked("operation.body is not a JSON object")
	}
	key := newKey()
	first, err := s.execute(ctx, key, s.p.Operation.Body)
	if err != nil {
		return err
	}
	for _, v := range variants {
		if e := s.again(ctx, request{keys: []string{key}, body: v.body}); !e.same(s, first) {
			return fails(shown(first, e), "%s: the same values are another request", v.name)
		}
		s.covers("%s", v.name)
	}
	return s.comparesRequests(ctx, key)
}

func checkHeaderFields(ctx context.Context, s *suite) error { // IR-12
	key := newKey()
	first, err := s.execute(ctx, key, s.p.Operation.Body)
	if err != nil {
		return err
	}
	fields := map[string]string{
		"X-Request-Id": newKey(),
		"User-Agent":   "conformance-again/2",
		"Accept":       "application/json, */*;q=0.1",
		"Prefer":       "conformance",
		"Traceparent":  "00-" + newKey() + "-" + newKey()[:16] + "-01",
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		again := s.again(ctx, request{keys: []string{key}, body: s.p.Operation.Body, header: map[string]string{name: fields[name]}})
		if !again.same(s, first) {
			return fails(shown(first, again), "another value of %s makes another request", name)
		}
	}
	s.covers("%s", strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
	return nil
}

func checkReuse(ctx context.Context, s *suite) error { // IR-13
	errs := []error{s.reuseFinished(ctx)}
	if s.p.Operation.Declined != "" {
		errs = append(errs, s.reuseDeclined(ctx))
	}
	if s.level >= 3 && s.p.Slow != nil {
		errs = append(errs, s.reuseInProgress(ctx))
	}
	if s.level >= 5 && s.hooks.kill != nil && s.p.Slow != nil && !s.quick {
		errs = append(errs, s.reuseInterrupted(ctx))
	}
	return all(errs...)
}

func (s *suite) reuseFinished(ctx context.Context) error {
	if _, err := s.account(ctx); err != nil {
		return err
	}
	key := newKey()
	first, err := s.execute(ctx, key, s.p.Operation.Body)
	if err != nil {
		return err
	}
	s.covers("a finished key")
	e := s.send(ctx, request{keys: []string{key}, body: s.p.Operation.Changed})
	return all(s.hasStatus(reused, "a finished key with another request", e, first), s.executed(ctx, 1, first, e))
}

func (s *suite) reuseDeclined(ctx context.Context) error {
	declined, err := s.decline(ctx, newKey())
	if err != nil {
		return err
	}
	s.covers("a declined one")
	e := s.send(ctx, request{keys: declined.keys, body: s.p.Operation.Body})
	return s.hasStatus(reused, "a key with a stored failure and another request", e, declined)
}

func (s *suite) reuseInProgress(ctx context.Context) error {
	_, second, err := s.during(ctx, func(r *request) { r.body = s.p.Operation.Changed })
	if err != nil {
		return err
	}
	s.covers("one in progress")
	return s.hasStatus(reused, "a key in progress with another request", second)
}

func checkOrder(ctx context.Context, s *suite) error { // IR-14
	key := newKey()
	first, err := s.execute(ctx, key, s.p.Operation.Body)
	if err != nil {
		return err
	}
	if err := s.comparesRequests(ctx, key); err != nil {
		return err
	}
	unknown := s.send(ctx, request{keys: []string{newKey()}, body: s.p.Operation.Invalid})
	changed := s.send(ctx, request{keys: []string{key}, body: s.p.Operation.Changed})
	invalid := s.send(ctx, request{keys: []string{key}, body: s.p.Operation.Invalid})
	kind := func(e *exchange) string { return fmt.Sprint(e.status, e.member("type"), e.verdict()) }
	switch {
	case kind(changed) == kind(unknown):
		return notChecked("the rejection of a reused key equals that of an invalid value")
	case kind(invalid) != kind(changed):
		return fails(shown(first, changed, invalid), "with a known key, an invalid value is validated before the key is looked up")
	}
	return nil
}

func checkCorrectable(ctx context.Context, s *suite) error { // IR-15
	o := s.p.Operation
	rejected := s.malformed()
	delete(rejected, shortKey)
	for _, name := range slices.Sorted(maps.Keys(rejected)) {
		r := rejected[name]
		if _, err := s.account(ctx); err != nil {
			return err
		}
		refused := s.send(ctx, r)
		if !refused.rejected() {
			continue // not the subject of this clause
		}
		s.covers("%s", name)
		corrected, err := s.settle(ctx, request{keys: r.keys, body: o.Body}, s.p.Patience)
		if err != nil {
			return err
		}
		if !corrected.success(s) || corrected.replayed(s) {
			return fails(shown(refused, corrected), "%s: the corrected request with the same key is not executed", name)
		}
		if err := s.executed(ctx, 1, refused, corrected); err != nil {
			return err
		}
	}
	return nil
}

// decline sends the declined request until it has its final response.
func (s *suite) decline(ctx context.Context, key string) (*exchange, error) {
	if _, err := s.account(ctx); err != nil {
		return nil, err
	}
	e, err := s.settle(ctx, request{keys: []string{key}, body: s.p.Operation.Declined}, s.p.Patience)
	if err == nil && e.status != s.p.Operation.Declines {
		err = fails(shown(e), "the declined request: %s instead of %d", e.outcome(), s.p.Operation.Declines)
	}
	_, uncounted := s.account(ctx)
	return e, cmp.Or(err, uncounted)
}

func checkStored(ctx context.Context, s *suite) error { // IR-19
	if _, err := s.account(ctx); err != nil {
		return err
	}
	finals, err := s.finish(ctx)
	if err != nil {
		return err
	}
	// A server may remember the last request only, of all accounts or of one.
	atOnce := s.kept(ctx, finals, "at once")
	for _, body := range []string{s.p.Operation.Changed, s.p.Operation.Body, s.p.Operation.Invalid} {
		s.send(ctx, request{keys: []string{newKey()}, body: body})
	}
	errs := []error{atOnce, s.kept(ctx, finals, "after other requests")}
	if s.p.SecondAccount != nil {
		s.send(ctx, request{keys: []string{newKey()}, body: s.p.Operation.Body, credential: s.p.SecondAccount})
		errs = append(errs, s.kept(ctx, finals, "after a request of another account"))
	}
	// A failure that is executed again may have the same bytes.
	for _, f := range finals[1:] {
		if e := s.send(ctx, request{keys: f.keys, body: s.p.Operation.Body}); e.success(s) {
			errs = append(errs, fails(shown(f.response, e), "the failure is not stored: another request with its key is executed"))
		}
	}
	return all(errs...)
}

// replays returns pairs of a first response and its replay.
func (s *suite) replays(ctx context.Context) ([][2]*exchange, error) {
	o := s.p.Operation
	var pairs [][2]*exchange
	key := newKey()
	first, err := s.execute(ctx, key, o.Body)
	if err != nil {
		return nil, err
	}
	for range 2 {
		pairs = append(pairs, [2]*exchange{first, s.again(ctx, request{keys: []string{key}, body: o.Body})})
		s.send(ctx, request{keys: []string{newKey()}, body: o.Changed}) // a part of the replay may be that of the last response
	}
	if o.Declined != "" {
		failed, err := s.decline(ctx, newKey())
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, [2]*exchange{failed, s.again(ctx, request{keys: failed.keys, body: o.Declined})})
	}
	return pairs, nil
}

// stored leaves out a failure that is not marked as a replay although a success is: IR-19
// and IR-26 report it.
func (s *suite) stored(pairs [][2]*exchange) [][2]*exchange {
	return slices.DeleteFunc(slices.Clone(pairs), func(pair [2]*exchange) bool {
		return pairs[0][1].replayed(s) && !pair[1].replayed(s)
	})
}

func checkSameBytes(ctx context.Context, s *suite) error { // IR-24
	pairs, err := s.replays(ctx)
	for _, pair := range s.stored(pairs) {
		if pair[1].status != pair[0].status {
			return fails(pair[:], "the replay has the status %s instead of %d", pair[1].outcome(), pair[0].status)
		}
		if !bytes.Equal(pair[1].body, pair[0].body) {
			return fails(pair[:], "the replay differs from the first response")
		}
	}
	return err
}

func checkSameHeaders(ctx context.Context, s *suite) error { // IR-25
	pairs, err := s.replays(ctx)
	for _, pair := range s.stored(pairs) {
		for _, name := range []string{"Content-Type", "Location"} {
			if pair[1].status == 0 || pair[0].header.Get(name) != pair[1].header.Get(name) {
				return fails(pair[:], "the replay has another %s", name)
			}
		}
	}
	return err
}

func checkMarked(ctx context.Context, s *suite) error { // IR-26
	if s.p.ReplayHeader == "" {
		return notChecked("replay_header is empty")
	}
	pairs, err := s.replays(ctx)
	if err != nil {
		return err
	}
	for _, pair := range pairs {
		if !pair[1].replayed(s) {
			return fails(pair[:], "the repetition of a %d has no %s: true", pair[0].status, s.p.ReplayHeader)
		}
	}
	o := s.p.Operation
	others := []*exchange{
		pairs[0][0],
		s.send(ctx, request{keys: pairs[0][0].keys, body: o.Changed}),
		s.send(ctx, request{keys: []string{newKey()}, body: o.Invalid}),
	}
	for _, e := range others {
		// A changed request that gets the stored response violates IR-8 and IR-13.
		if e.replayed(s) && !e.same(s, pairs[0][0]) || e == pairs[0][0] && e.replayed(s) {
			return fails(shown(e), "a response that is no replay has %s: true", s.p.ReplayHeader)
		}
	}
	return nil
}

const replays = 5

func checkReplayHasNoEffect(ctx context.Context, s *suite) error { // IR-27
	if err := requireEffects(s); err != nil {
		return err
	}
	if _, err := s.account(ctx); err != nil {
		return err
	}
	key := newKey()
	first, err := s.execute(ctx, key, s.p.Operation.Body)
	if err != nil {
		return err
	}
	once := s.executed(ctx, 1, first)
	again := first
	for range replays {
		again = s.again(ctx, request{keys: []string{key}, body: s.p.Operation.Body})
	}
	s.covers("%d replays", replays)
	return all(once, s.executed(ctx, 0, first, again))
}

func checkNotCached(ctx context.Context, s *suite) error { // IR-28
	key := newKey()
	for _, body := range []string{s.p.Operation.Body, s.p.Operation.Body, s.p.Operation.Changed} {
		e := s.send(ctx, request{keys: []string{key}, body: body})
		if e.status == 0 || !strings.Contains(e.header.Get("Cache-Control"), "no-store") {
			return fails(shown(e), "the response has no Cache-Control: no-store")
		}
	}
	return nil
}

const shortestRetention = 24 * time.Hour

func checkRetention(ctx context.Context, s *suite) error { // IR-35
	if s.p.Retention == 0 {
		return notChecked("retention is missing: the time that the server documents")
	}
	if s.p.Retention < shortestRetention {
		return fails(nil, "the documented time is %s", s.p.Retention)
	}
	if s.p.Status == nil || s.p.Status.Expires == "" {
		return onlyDeclared("retention of the profile file; no request can show it without status.expires, but -recheck can later")
	}
	first, state, expires, err := s.finishedKeyExpires(ctx)
	if err != nil {
		return err
	}
	// The clocks may differ by a minute.
	kept := expires.Sub(first.sent)
	if kept < shortestRetention-time.Minute {
		return fails(shown(state), "the response is kept for %s", kept)
	}
	s.covers("the status resource names %s", kept.Round(time.Hour))
	return nil
}

// finishedKeyExpires finishes a new key, and reads from its status resource when it expires.
func (s *suite) finishedKeyExpires(ctx context.Context) (first, state *exchange, expires time.Time, err error) {
	key := newKey()
	if first, err = s.execute(ctx, key, s.p.Operation.Body); err != nil {
		return nil, nil, expires, err
	}
	state = s.state(ctx, key)
	if state.status != http.StatusOK {
		return nil, nil, expires, notChecked("the status of a finished key cannot be read (IR-47)")
	}
	document, _ := decode(state.body)
	value, _ := at(document, s.p.Status.Expires)
	if expires, err = time.Parse(time.RFC3339, fmt.Sprint(value)); err != nil {
		return nil, nil, expires, fails(shown(state), "no time of RFC 3339 at status.expires")
	}
	return first, state, expires, nil
}

func checkNewKey(ctx context.Context, s *suite) error { // IR-41
	malformed := s.malformed()
	for _, name := range slices.Sorted(maps.Keys(malformed)) {
		if e := s.send(ctx, malformed[name]); e.verdict() == "new-key" {
			return fails(shown(e), "%s: new-key without a stored failure", name)
		}
	}
	key := newKey()
	first, err := s.execute(ctx, key, s.p.Operation.Body)
	if err != nil {
		return err
	}
	var errs []error
	if e := s.send(ctx, request{keys: []string{key}, body: s.p.Operation.Changed}); e.rejected() {
		s.covers("a reused key")
		errs = append(errs, s.hasVerdict("never", "a reused key", e, first))
	}
	if s.level >= 5 && s.hooks.expire != nil {
		r, err := s.expired(ctx)
		if err != nil {
			return err
		}
		if r.after.rejected() {
			s.covers("an expired key")
			errs = append(errs, s.hasVerdict("never", "an expired key", r.after, r.first))
		}
	}
	if len(errs) == 0 {
		return notChecked("no reused and no expired key was rejected")
	}
	return all(errs...)
}

func checkOutcome(ctx context.Context, s *suite) error { // IR-42
	unused := s.send(ctx, request{keys: []string{newKey()}, body: s.p.Operation.Invalid})
	if unused.rejected() && unused.member("outcome") != "none" {
		return fails(shown(unused), "the outcome of an unused key is %q instead of none", unused.member("outcome"))
	}
	key := newKey()
	if _, err := s.execute(ctx, key, s.p.Operation.Body); err != nil {
		return err
	}
	reused := s.send(ctx, request{keys: []string{key}, body: s.p.Operation.Changed})
	if reused.rejected() && reused.member("outcome") != "final" {
		return fails(shown(reused), "the outcome of a finished key is %q instead of final", reused.member("outcome"))
	}
	if s.level < 3 || s.p.Slow == nil {
		return nil
	}
	_, second, err := s.during(ctx, func(*request) {})
	if err == nil && second.status == http.StatusConflict && second.member("outcome") != "unknown" {
		return fails(shown(second), "the outcome of a key in progress is %q instead of unknown", second.member("outcome"))
	}
	return nil
}

func checkStatus(ctx context.Context, s *suite) error { // IR-47
	if s.p.Status == nil {
		return notChecked("status is missing")
	}
	key := newKey()
	if unused := s.state(ctx, key); unused.status != http.StatusNotFound {
		return fails(shown(unused), "the status of an unused key: %s instead of 404", unused.outcome())
	} else if outcome := unused.member("outcome"); outcome != "" && outcome != "unknown" {
		return fails(shown(unused), "the 404 of a key has the outcome %q instead of unknown, although it proves nothing", outcome)
	}
	first, err := s.execute(ctx, key, s.p.Operation.Body)
	if err != nil {
		return err
	}
	if used := s.state(ctx, key); used.status != http.StatusOK {
		return fails(shown(first, used), "the status of a used key: %s instead of 200", used.outcome())
	}
	if s.level < 5 || s.hooks.expire == nil {
		return nil
	}
	expired, err := s.expired(ctx)
	if err != nil {
		return err
	}
	if state := s.state(ctx, expired.key); state.status != http.StatusOK {
		return fails(shown(expired.first, state), "the status of an expired key: %s instead of 200", state.outcome())
	}
	return nil
}

func checkAuthentication(ctx context.Context, s *suite) error { // IR-49
	if len(s.p.Account) == 0 {
		return notChecked("account is missing")
	}
	known := newKey()
	first, err := s.execute(ctx, known, s.p.Operation.Body)
	if err != nil {
		return err
	}
	wrong := make(map[string]string)
	for name, value := range s.p.Account {
		wrong[name] = value + "x"
	}
	attempts := map[string]request{
		"no credential":      {noAccount: true},
		"a wrong credential": {credential: wrong},
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(attempts)) {
		errs = append(errs, s.unauthenticated(ctx, name, attempts[name], first))
	}
	return all(errs...)
}

// unauthenticated requires that the response does not depend on the key.
func (s *suite) unauthenticated(ctx context.Context, name string, r request, first *exchange) error {
	r.body = s.p.Operation.Body
	r.keys = first.keys
	used := s.send(ctx, r)
	r.keys = []string{newKey()}
	unused := s.send(ctx, r)
	switch {
	case !used.rejected() || used.replayed(s):
		return fails(shown(first, used), "%s: %s instead of a rejection", name, used.outcome())
	case used.status != unused.status || used.member("type") != unused.member("type") || used.member("outcome") != unused.member("outcome"):
		return fails(shown(used, unused), "%s: the response depends on the key", name)
	}
	r.keys, r.body = first.keys, s.p.Operation.Changed
	if reused := s.send(ctx, r); reused.status != used.status || reused.member("type") != used.member("type") {
		return fails(shown(used, reused), "%s: the response depends on the fingerprint", name)
	}
	return nil
}
