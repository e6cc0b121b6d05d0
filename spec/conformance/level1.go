package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

func checkOneField(ctx context.Context, s *suite) error { // IR-1
	key := newKey()
	return s.refused(ctx, map[string]request{
		"two equal keys":     {keys: []string{key, key}, body: s.p.Operation.Body},
		"two different keys": {keys: []string{newKey(), newKey()}, body: s.p.Operation.Body},
	}, s.isMalformed)
}

func checkKeyRequired(ctx context.Context, s *suite) error { // IR-2
	return s.refused(ctx, map[string]request{
		"no key": {body: s.p.Operation.Body},
	}, s.isMalformed)
}

// visible returns all characters of a key except those of the quoted form.
func visible() string {
	var text strings.Builder
	for c := '!'; c <= '~'; c++ {
		if c != '"' && c != '\\' {
			text.WriteRune(c)
		}
	}
	return text.String()
}

func checkKeySyntax(ctx context.Context, s *suite) error { // IR-3
	malformed := make(map[string]request)
	for name, key := range map[string]string{
		"an empty key":               "",
		"15 characters":              newKey()[:15],
		"256 characters":             strings.Repeat(newKey(), 8),
		"a space":                    newKey() + " " + newKey(),
		"a letter that is not ASCII": newKey() + "é",
	} {
		malformed[name] = request{keys: []string{key}, body: s.p.Operation.Body}
	}
	errs := []error{s.refused(ctx, malformed, s.isMalformed)}
	for _, key := range []string{newKey()[:16], strings.Repeat(newKey(), 8)[:255], newKey() + visible()} {
		_, err := s.execute(ctx, key, s.p.Operation.Body)
		errs = append(errs, err)
	}
	return all(errs...)
}

func quoted(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

func checkForms(ctx context.Context, s *suite) error { // IR-4
	form := func(key string) error {
		first, err := s.execute(ctx, key, s.p.Operation.Body)
		if err != nil {
			return err
		}
		again, err := s.settled(ctx, request{keys: []string{quoted(key)}, body: s.p.Operation.Body})
		if err == nil && !again.same(s, first) {
			err = fails(shown(first, again), "the quoted form of the key is another key")
		}
		return err
	}
	return all(form(newKey()), form(newKey()+`\a"b`), s.refused(ctx, map[string]request{
		"a parameter": {keys: []string{quoted(newKey()) + ";a=1"}, body: s.p.Operation.Body},
		"a list":      {keys: []string{quoted(newKey()) + ", " + quoted(newKey())}, body: s.p.Operation.Body},
	}, s.isMalformed))
}

func checkKeyRepeated(ctx context.Context, s *suite) error { // IR-5
	for _, r := range []request{
		{keys: []string{newKey()}, body: s.p.Operation.Body},
		{keys: []string{quoted(newKey())}, body: s.p.Operation.Body},
		{keys: []string{newKey()}, body: s.p.Operation.Invalid},
	} {
		if e := s.send(ctx, r); e.status == 0 || e.header.Get(s.p.KeyHeader) != r.keys[0] {
			return fails(shown(e), "the response does not repeat the key")
		}
	}
	return nil
}

func checkAmbiguousJSON(ctx context.Context, s *suite) error { // IR-10
	variants := ambiguous(s.p.Operation.Body)
	if len(variants) == 0 {
		return notChecked("operation.body is not a JSON object")
	}
	requests := make(map[string]request)
	for _, v := range variants {
		requests[v.name] = request{keys: []string{newKey()}, body: v.body}
	}
	return s.refused(ctx, requests, s.isMalformed)
}

func checkQuery(ctx context.Context, s *suite) error { // IR-11
	return all(s.definedQuery(ctx), s.refused(ctx, map[string]request{
		"an unknown query parameter": {keys: []string{newKey()}, body: s.p.Operation.Body, query: "conformance_dry_run=true"},
	}, func(name string, e *exchange) error {
		if e.rejected() {
			return nil
		}
		return fails(shown(e), "%s: %s instead of a rejection", name, e.outcome())
	}))
}

// definedQuery requires that a parameter that the operation defines makes another request.
func (s *suite) definedQuery(ctx context.Context) error {
	query := s.p.Operation.Query
	if query == "" {
		return notChecked("operation.query is missing: a parameter that changes the effect")
	}
	for _, pair := range [][2]string{{"", query}, {query, ""}} {
		r := request{keys: []string{newKey()}, body: s.p.Operation.Body, query: pair[0]}
		first, err := s.settled(ctx, r)
		if err != nil {
			return fmt.Errorf("with the query %q: %w", r.query, err)
		}
		r.query = pair[1]
		if err := s.differs(ctx, first, r, "the query "+query); err != nil {
			return err
		}
	}
	s.covers("%s", query)
	return nil
}

// differs requires that a request with a used key is rejected, because it is another one.
func (s *suite) differs(ctx context.Context, first *exchange, r request, what string) error {
	other := s.send(ctx, r)
	if other.same(s, first) {
		return s.breaks(wrongResponse, "another request, by "+what+", got the stored response", first, other)
	}
	if !other.rejected() {
		return fails(shown(first, other), "another request, by %s: %s instead of a rejection", what, other.outcome())
	}
	return nil
}

const shortKey = "a key of 8 characters"

// malformed returns requests that are rejected for their form.
func (s *suite) malformed() map[string]request {
	o := s.p.Operation
	requests := map[string]request{
		shortKey:                     {keys: []string{newKey()[:8]}, body: o.Body},
		"an invalid value":           {keys: []string{newKey()}, body: o.Invalid},
		"an unsupported media type":  {keys: []string{newKey()}, body: o.Body, header: map[string]string{"Content-Type": "application/x-conformance"}},
		"an unknown query parameter": {keys: []string{newKey()}, body: o.Body, query: "conformance_dry_run=true"},
	}
	if _, err := decode([]byte(o.Body)); err == nil {
		requests["truncated JSON"] = request{keys: []string{newKey()}, body: o.Body[:len(o.Body)/2]}
	}
	if len(s.p.Account) > 0 {
		requests["no credential"] = request{keys: []string{newKey()}, body: o.Body, noAccount: true}
	}
	return requests
}

func checkVerdict(ctx context.Context, s *suite) error { // IR-38
	if s.p.Dialect.Verdict == "none" {
		s.deviates(noVerdict)
		return nil
	}
	requests := s.malformed()
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		e := s.send(ctx, requests[name])
		if e.status < 400 {
			continue // not the subject of this clause
		}
		if media, _, _ := strings.Cut(e.header.Get("Content-Type"), ";"); media != "application/problem+json" {
			return &violation{message: name + ": the error is not a problem document", cause: noVerdict, exchanges: shown(e)}
		}
		if !slices.Contains([]string{"same-key", "corrected", "new-key", "never"}, e.verdict()) {
			return &violation{message: name + ": the problem document has no valid member retry", cause: noVerdict, exchanges: shown(e)}
		}
		s.covers("%s", name)
	}
	return nil
}

func checkCorrected(ctx context.Context, s *suite) error { // IR-39
	forForm := []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity}
	requests := s.malformed()
	requests["no key"] = request{body: s.p.Operation.Body}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		e := s.send(ctx, requests[name])
		if !slices.Contains(forForm, e.status) {
			continue
		}
		if err := s.hasVerdict("corrected", name, e); err != nil {
			return err
		}
		s.covers("%s", name)
	}
	if len(s.covered) == 0 {
		return notChecked("no request was rejected for its form")
	}
	return nil
}

func checkProblemTypes(ctx context.Context, s *suite) error { // IR-51
	key := newKey()
	first, err := s.execute(ctx, key, s.p.Operation.Body)
	if err != nil {
		return err
	}
	reused := s.send(ctx, request{keys: []string{key}, body: s.p.Operation.Changed})
	invalid := s.send(ctx, request{keys: []string{newKey()}, body: s.p.Operation.Invalid})
	switch {
	case !reused.rejected():
		return notChecked("a reused key is not rejected (IR-13)")
	case reused.member("type") == "" && s.p.Dialect.Verdict == "none":
		s.deviates(noVerdict)
		return nil
	case reused.member("type") == "":
		return fails(shown(first, reused), "a reused key: the response has no problem type")
	case reused.member("type") == invalid.member("type"):
		return fails(shown(invalid, first, reused), "a reused key has the problem type of an invalid value")
	case s.level < 5 || s.hooks.expire == nil:
		return nil
	}
	expired, err := s.expired(ctx)
	switch {
	case err != nil:
		return err
	case !expired.after.rejected():
		return notChecked("an expired key is not rejected (IR-34)")
	case expired.after.member("type") == "":
		return fails(shown(expired.after), "an expired key: the response has no problem type")
	case slices.Contains([]string{reused.member("type"), invalid.member("type")}, expired.after.member("type")):
		return fails(shown(reused, expired.after), "an expired key has the problem type of another error")
	}
	return nil
}

func checkLifetime(ctx context.Context, s *suite) error { // IR-52
	if s.p.Status == nil || s.p.Status.Expires == "" {
		return notChecked("status.expires is missing")
	}
	_, _, _, err := s.finishedKeyExpires(ctx)
	return err
}

func checkOctets(ctx context.Context, s *suite) error { // IR-53
	var errs []error
	for _, pair := range similarKeys() {
		errs = append(errs, s.distinguishes(ctx, pair))
	}
	return all(errs...)
}

// keyPair is two keys that a careless server takes for one. IR-3 allows the first ones; the
// others only count if the server accepts them.
type keyPair struct{ name, first, second string }

func similarKeys() []keyPair {
	long := strings.Repeat(newKey(), 8) // 256 characters
	const separators = ":;/|#?&=@"
	cut, parts, escaped, hyphens, marks := newKey(), newKey(), newKey(), newKey(), newKey()
	return []keyPair{
		{"after a comma", cut + ",a", cut + ",b"},
		{"after another separator", parts + separators + "a", parts + separators + "b"},
		{"in a percent sign", escaped + "%41", escaped + "A"},
		{"in a hyphen", hyphens + "-a", hyphens + "a"},
		{"in punctuation", marks + ".a_b:c,d", marks + "abcd"},
		{"in case", "case-" + newKey(), ""},
		{"after 64 characters", long[:64] + "a", long[:64] + "b"},
		{"in the last of 255 characters", "a" + long[1:254] + "a", "a" + long[1:254] + "b"},
		{"after 255 characters", "b" + long[1:] + "a", "b" + long[1:] + "b"},
		{"in white space", newKey() + " a", ""},
		{"in Unicode form", newKey() + "\u00e9", ""},
	}
}

func (s *suite) distinguishes(ctx context.Context, pair keyPair) error {
	if pair.second == "" {
		pair.second = strings.NewReplacer("\u00e9", "e\u0301", " ", "  ").Replace(pair.first)
	}
	if pair.second == pair.first {
		pair.second = strings.ToUpper(pair.first)
	}
	first, err := s.settle(ctx, request{keys: []string{pair.first}, body: s.p.Operation.Body}, s.p.Patience)
	if err != nil {
		return err
	}
	if !first.success(s) {
		return notChecked("a key that differs " + pair.name + " is rejected (IR-3)")
	}
	s.covers("keys that differ %s", pair.name)
	other, err := s.settle(ctx, request{keys: []string{pair.second}, body: s.p.Operation.Body}, s.p.Patience)
	switch {
	case err != nil:
		return err
	case other.same(s, first):
		return s.breaks(otherKey, "a key that differs "+pair.name+" got the response of the other key", first, other)
	case !other.success(s):
		return &violation{
			message: fmt.Sprintf("a new key that differs %s: %s instead of %d", pair.name, other.outcome(), s.p.Operation.Status),
			form:    other.rejected(), exchanges: shown(first, other),
		}
	}
	return nil
}

func checkSignificantFields(ctx context.Context, s *suite) error { // IR-54
	if len(s.p.Operation.Significant) == 0 {
		return notChecked("operation.significant is missing: header fields that change the effect")
	}
	key := newKey()
	first, err := s.execute(ctx, key, s.p.Operation.Body)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(s.p.Operation.Significant)) {
		r := request{keys: []string{key}, body: s.p.Operation.Body, header: map[string]string{name: s.p.Operation.Significant[name]}}
		if err := s.differs(ctx, first, r, "the value of "+name); err != nil {
			return err
		}
	}
	return nil
}

func checkOtherMethods(ctx context.Context, s *suite) error { // IR-56
	key := newKey()
	if _, err := s.execute(ctx, key, s.p.Operation.Body); err != nil {
		return err
	}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
		read := &otherOperation{Method: method, Path: s.p.Operation.Path}
		without := s.send(ctx, request{other: read})
		if without.status >= http.StatusInternalServerError {
			return notChecked(fmt.Sprintf("%s without a key: %s", method, without.outcome()))
		}
		for _, keys := range [][]string{{key}, {newKey()}, {"short"}} {
			if with := s.send(ctx, request{keys: keys, other: read}); with.status != without.status || with.replayed(s) {
				return fails(shown(without, with), "%s with a key: %s instead of %d", method, with.outcome(), without.status)
			}
		}
	}
	return nil
}

func checkAuthorisedReplay(ctx context.Context, s *suite) error { // IR-58
	if s.p.RestrictedCredential == nil {
		return notChecked("restricted_credential is missing: a credential of the account that may not execute the operation")
	}
	key := newKey()
	first, err := s.execute(ctx, key, s.p.Operation.Body)
	if err != nil {
		return err
	}
	unused := s.send(ctx, request{keys: []string{newKey()}, body: s.p.Operation.Body, credential: s.p.RestrictedCredential})
	if !unused.rejected() {
		return notChecked("restricted_credential may execute the operation")
	}
	replayed := s.send(ctx, request{keys: []string{key}, body: s.p.Operation.Body, credential: s.p.RestrictedCredential})
	if !replayed.rejected() || replayed.replayed(s) || contains(replayed, first.id(s)) {
		return s.breaks(otherTenant, "a credential that may not execute the operation got its stored response", unused, first, replayed)
	}
	return nil
}

// checkBrowsers sends what a browser sends for a script of another origin.
func checkBrowsers(ctx context.Context, s *suite) error { // IR-59
	origin := s.p.Origin
	if origin == "" {
		origin = "https://conformance.example"
	}
	preflight := s.send(ctx, request{noAccount: true, other: &otherOperation{Method: http.MethodOptions, Path: s.p.Operation.Path, Headers: map[string]string{
		"Origin": origin, "Access-Control-Request-Method": s.p.Operation.Method,
		"Access-Control-Request-Headers": strings.ToLower(s.p.KeyHeader) + ",content-type",
	}}})
	if preflight.header.Get("Access-Control-Allow-Origin") == "" {
		return notChecked("the server allows no requests from the origin " + origin)
	}
	if !lists(preflight.header, "Access-Control-Allow-Headers", s.p.KeyHeader) {
		return fails(shown(preflight), "the preflight response does not allow %s", s.p.KeyHeader)
	}
	e, err := s.settled(ctx, request{keys: []string{newKey()}, body: s.p.Operation.Body, header: map[string]string{"Origin": origin}})
	if err != nil {
		return err
	}
	for _, name := range []string{s.p.KeyHeader, s.p.ReplayHeader, "Retry-After", "Location"} {
		if name != "" && !lists(e.header, "Access-Control-Expose-Headers", name) {
			return fails(shown(e), "%s is not exposed to scripts", name)
		}
	}
	return nil
}

// lists reports whether a list of header fields has a name.
func lists(header http.Header, field, name string) bool {
	for listed := range strings.SplitSeq(strings.Join(header.Values(field), ","), ",") {
		if listed = strings.TrimSpace(listed); listed == "*" || strings.EqualFold(listed, name) {
			return true
		}
	}
	return false
}
