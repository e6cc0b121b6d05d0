package stripetest

import (
	"net/http"
	"regexp"
	"strings"
	"time"
)

// searchLag is how old an intent must be for search to find it by itself.
// Stripe says "under a minute" normally, and up to an hour in outages.
const searchLag = time.Minute

// searchPage is Stripe's other kind of list.
type searchPage struct {
	Object   string   `json:"object"`
	URL      string   `json:"url"`
	HasMore  bool     `json:"has_more"`
	NextPage optional `json:"next_page"`
	Data     []any    `json:"data"`
}

// searchIntents answers queries of up to ten clauses of the form
// field:"value", joined by AND, over metadata["key"], status, customer and
// currency. What is young is not found: a miss proves nothing.
func (s *Server) searchIntents(c *call) (effect, *apiError) {
	c.form.require("query")
	query := c.form.text("query", 5000)
	limit := readLimit(c.form)
	after := c.form.ref("page")
	expand := c.form.expands("data.latest_charge")
	if err := c.form.done(); err != nil {
		return nil, err
	}
	match, ok := parseQuery(query)
	if !ok {
		return nil, invalidRequest(http.StatusBadRequest, "", "query",
			"We were unable to parse your search query. The stand-in knows field:\"value\" clauses joined by AND.")
	}
	if _, ok := s.intents.get(after); after != "" && !ok {
		return nil, invalidRequest(http.StatusBadRequest, "", "page", "The page token is not valid.")
	}
	return func() (any, *apiError) {
		old := s.now().Add(-searchLag).Unix()
		found, more := s.intents.page(after, "", limit, func(pi *intent) bool {
			return (pi.searchable || pi.Created <= old) && match(pi)
		})
		page := searchPage{Object: "search_result", URL: c.request.URL.Path, HasMore: more, Data: []any{}}
		for _, pi := range found {
			page.Data = append(page.Data, pi.view(expand))
		}
		if more {
			page.NextPage = optional(found[len(found)-1].ID)
		}
		return page, nil
	}, nil
}

// FlushSearch lets search find everything that exists now.
func (s *Server) FlushSearch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pi := range s.intents.all {
		pi.searchable = true
	}
}

func parseQuery(query string) (match func(*intent) bool, ok bool) {
	clause := regexp.MustCompile(`^(metadata|status|customer|currency)(?:\[["']([^"']+)["']\])?:["']([^"']*)["']$`)
	type wanted struct{ field, key, value string }
	var all []wanted
	for part := range strings.SplitSeq(query, " AND ") {
		m := clause.FindStringSubmatch(strings.TrimSpace(part))
		if m == nil || (m[1] == "metadata") != (m[2] != "") {
			return nil, false
		}
		all = append(all, wanted{m[1], m[2], m[3]})
	}
	return func(pi *intent) bool {
		for _, w := range all {
			actual := map[string]string{
				"metadata": pi.Metadata[w.key],
				"status":   pi.Status,
				"customer": string(pi.Customer),
				"currency": pi.Currency,
			}[w.field]
			if actual != w.value {
				return false
			}
		}
		return true
	}, len(all) <= 10
}
