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
	return s.refused(ctx, http.StatusBadRequest, map[string]request{
		"two equal keys":     {keys: []string{key, key}, body: s.p.Operation.Body},
		"two different keys": {keys: []string{newKey(), newKey()}, body: s.p.Operation.Body},
	})
}

func checkKeyRequired(ctx context.Context, s *suite) error { // IR-2
	return s.refused(ctx, http.StatusBadRequest, map[string]request{
		"no key": {body: s.p.Operation.Body},
	})
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
	if err := s.refused(ctx, http.StatusBadRequest, malformed); err != nil {
		return err
	}
	for _, key := range []string{newKey()[:16], strings.Repeat(newKey(), 8)[:255], newKey() + visible()} {
		if _, err := s.execute(ctx, key, s.p.Operation.Body); err != nil {
			return err
		}
	}
	return nil
}

func quoted(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

func checkForms(ctx context.Context, s *suite) error { // IR-4
	for _, key := range []string{newKey(), newKey() + `\a"b`} {
		first, err := s.execute(ctx, key, s.p.Operation.Body)
		if err != nil {
			return err
		}
		again, err := s.settled(ctx, request{keys: []string{quoted(key)}, body: s.p.Operation.Body})
		if err != nil {
			return err
		}
		if !again.same(s, first) {
			return fails(shown(first, again), "the quoted form of the key is another key")
		}
	}
	return s.refused(ctx, http.StatusBadRequest, map[string]request{
		"a parameter": {keys: []string{quoted(newKey()) + ";a=1"}, body: s.p.Operation.Body},
		"a list":      {keys: []string{quoted(newKey()) + ", " + quoted(newKey())}, body: s.p.Operation.Body},
	})
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
	return s.refused(ctx, http.StatusBadRequest, requests)
}

func checkQuery(ctx context.Context, s *suite) error { // IR-11
	return s.refused(ctx, 0, map[string]request{
		"an unknown query parameter": {keys: []string{newKey()}, body: s.p.Operation.Body, query: "conformance_dry_run=true"},
	})
}

const shortKey = "a key of 3 characters"

// malformed returns requests that are rejected for their form.
func (s *suite) malformed() map[string]request {
	o := s.p.Operation
	requests := map[string]request{
		shortKey:                     {keys: []string{"abc"}, body: o.Body},
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
	requests := s.malformed()
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		e := s.send(ctx, requests[name])
		if e.status < 400 {
			continue // not the subject of this clause
		}
		if media, _, _ := strings.Cut(e.header.Get("Content-Type"), ";"); media != "application/problem+json" {
			return fails(shown(e), "%s: the error is not a problem document", name)
		}
		if !slices.Contains([]string{"same-key", "corrected", "new-key", "never"}, e.verdict()) {
			return fails(shown(e), "%s: the problem document has no valid member retry", name)
		}
	}
	return nil
}

func checkCorrected(ctx context.Context, s *suite) error { // IR-39
	rejected := []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity}
	requests := s.malformed()
	requests["no key"] = request{body: s.p.Operation.Body}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if e := s.send(ctx, requests[name]); slices.Contains(rejected, e.status) && e.verdict() != "corrected" {
			return fails(shown(e), "%s: the verdict is %q instead of corrected", name, e.verdict())
		}
	}
	return nil
}
