package api

import (
	"bytes"
	"net/http"
	"strings"

	"go.yaml.in/yaml/v3"

	"example.com/orders-api/idempotency"
)

func ReadKey(header http.Header) (idempotency.Key, error) { return readKey(header) }

// DocumentedProblem is what the file of a problem type promises.
type DocumentedProblem struct {
	Status         int
	Retry, Outcome []string
	Members        map[string]bool // whether the member is required
}

func DocumentedProblems() map[string]DocumentedProblem {
	documented := map[string]DocumentedProblem{}
	for _, t := range problemTypes() {
		p := DocumentedProblem{Status: t.Status, Retry: []string{t.Retry}, Outcome: t.Outcome, Members: map[string]bool{}}
		if t.Or != "" {
			p.Retry = append(p.Retry, t.Or)
		}
		header, _, _ := bytes.Cut(bytes.TrimPrefix(t.Text, []byte("---\n")), []byte("---\n"))
		var own struct{ Stored, Members string }
		_ = yaml.Unmarshal(header, &own) // valid: see problemTypes
		members := "type title status detail retry outcome " + own.Members
		switch {
		case t.Retry == "new-key": // each replay has the same bytes
		case own.Stored != "":
			members += " request_id?"
		default:
			members += " request_id"
		}
		for _, member := range strings.Fields(members) {
			name, optional := strings.CutSuffix(member, "?")
			p.Members[name] = !optional
		}
		documented[t.Slug] = p
	}
	return documented
}
