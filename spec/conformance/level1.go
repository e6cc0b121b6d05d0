package main

import (
	"context"
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
	return s.refused(ctx, map[string]request{
		"an unknown query parameter": {keys: []string{newKey()}, body: s.p.Operation.Body, query: "conformance_dry_run=true"},
	}, func(name string, e *exchange) error {
		if e.rejected() {
			return nil
		}
		return fails(shown(e), "%s: %s instead of a rejection", name, e.outcome())
	})
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
