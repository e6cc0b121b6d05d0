package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed against.yaml
var againstYAML []byte

// relation is how another document's rule relates to a clause of the profile.
type relation string

const (
	ruleSame     relation = "same"
	ruleDiffers  relation = "differs"  // the same duty in another form, which the dialect has
	ruleWeaker   relation = "weaker"   // recommended or allowed
	ruleOpen     relation = "open"     // not said
	ruleConflict relation = "conflict" // the contrary is required or allowed
)

// rule is what another document has for a clause.
type rule struct {
	Relation relation
	Keyword  string // of a rule that is judged
	Section  string
	Note     string
}

// judged reports whether a server can violate the other document there.
func (r rule) judged() bool { return r.Relation != ruleOpen && r.Relation != ruleConflict }

// neighbour is another document about idempotent requests.
type neighbour struct {
	Title, Name, URL, Read string

	Dialect dialect // of a server that follows this document
	rules   map[string]rule
}

// neighbours returns the documents of against.yaml by name.
func neighbours() (map[string]*neighbour, error) {
	var file struct {
		Documents map[string]*neighbour
		Clauses   map[string]map[string]rule
	}
	decoder := yaml.NewDecoder(bytes.NewReader(againstYAML))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		return nil, err
	}
	for id, rules := range file.Clauses {
		for name, r := range rules {
			n := file.Documents[name]
			if n == nil {
				return nil, fmt.Errorf("%s: unknown document %q", id, name)
			}
			if n.rules == nil {
				n.rules = make(map[string]rule)
			}
			n.rules[id] = r
		}
	}
	return file.Documents, nil
}

// against returns the document with a name.
func against(name string) (*neighbour, error) {
	all, err := neighbours()
	if err != nil {
		return nil, err
	}
	if n := all[name]; n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("-against: unknown document %q; there are %s", name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
}

// rule returns the document's rule for a clause.
func (n *neighbour) rule(id string) rule {
	if r, ok := n.rules[id]; ok {
		return r
	}
	return rule{Relation: ruleOpen}
}

// dialect returns what the profile file declares, and otherwise what the document has.
func (n *neighbour) dialect(declared dialect) dialect {
	return dialect{
		Malformed:  cmp.Or(declared.Malformed, n.Dialect.Malformed),
		Reused:     cmp.Or(declared.Reused, n.Dialect.Reused),
		Expired:    cmp.Or(declared.Expired, n.Dialect.Expired),
		InProgress: cmp.Or(declared.InProgress, n.Dialect.InProgress),
		Verdict:    cmp.Or(declared.Verdict, n.Dialect.Verdict),
		RetryAfter: cmp.Or(declared.RetryAfter, n.Dialect.RetryAfter),
	}
}

// clauses returns the clauses with the keywords of the document. Those that it leaves open or
// contradicts are not checked.
func (n *neighbour) clauses(all []clause) []clause {
	for i := range all {
		c, r := &all[i], n.rule(all[i].id)
		if r.judged() {
			c.keyword = r.Keyword
			continue
		}
		reason := notChecked("the " + n.Title + " leaves it open")
		if r.Relation == ruleConflict {
			reason = notChecked("the " + n.Title + " has the contrary: " + r.Note)
		}
		if c.check != nil {
			c.check = func(context.Context, *suite) error { return reason }
		}
	}
	return all
}

// judgeBy uses the clauses of another document, and its dialect where the profile file has none.
func (s *suite) judgeBy(n *neighbour) {
	s.table, s.against, s.dialect, s.p.Dialect = n.clauses(s.table), n.Title, n.Dialect, n.dialect(s.p.Dialect)
}
