package stripetest

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

const searchIntents = "GET /v1/payment_intents/search"

// A version is the state of an intent as a search finds it after the delay.
type version struct {
	at     time.Time
	intent intent
}

func (pi *intent) indexed(until time.Time) *intent {
	for _, v := range slices.Backward(pi.versions) {
		if !v.at.After(until) {
			return &v.intent
		}
	}
	return nil
}

// searchIntents returns one page only: with has_more, but without next_page.
func (s *Server) searchIntents(c *call) (effect, *apiError) {
	f := c.form
	f.require("query")
	wanted, parsed := parseQuery(f.text("query"))
	if !parsed {
		f.fail("", "", "We were unable to parse your search query. Try using the format `metadata[\"key\"]:\"value\"` to "+
			"query for metadata. (The fake knows no other fields.)")
	}
	limit := f.limit()
	if err := f.done(); err != nil {
		return nil, err
	}
	return func() (any, *apiError) {
		found := []*intent{} // newest first
		for _, pi := range slices.Backward(s.intents.all()) {
			v := pi.indexed(s.now().Add(-s.options.SearchDelay))
			if v != nil && !slices.ContainsFunc(wanted, func(m [2]string) bool { return v.Metadata[m[0]] != m[1] }) {
				found = append(found, v)
			}
		}
		return list[*intent]{
			Object: "search_result", URL: c.request.URL.Path, HasMore: len(found) > limit, Data: found[:min(limit, len(found))],
		}, nil
	}, nil
}

var searchClause = regexp.MustCompile(`^metadata\[(?:"([^"]+)"|'([^']+)')\]:(?:"([^"]*)"|'([^']*)')`)

// parseQuery returns the names and values of metadata clauses that are joined by AND.
func parseQuery(query string) (wanted [][2]string, ok bool) {
	for {
		clause := searchClause.FindStringSubmatch(query)
		if clause == nil {
			return nil, false
		}
		wanted = append(wanted, [2]string{clause[1] + clause[2], clause[3] + clause[4]})
		if query = query[len(clause[0]):]; query == "" {
			return wanted, true
		}
		if query, ok = strings.CutPrefix(query, " AND "); !ok {
			return nil, false
		}
	}
}

func searchNotOffered() *apiError {
	return invalidRequest(http.StatusBadRequest, "", "", "The search feature is temporarily unavailable in your region.")
}
