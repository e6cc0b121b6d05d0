package stripetest

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const searchIntents = "GET /v1/payment_intents/search"

// A searchIndex has the intents as a search finds them: each change is delayed.
type searchIndex struct {
	delay   time.Duration
	pending []indexChange // oldest first
	intents table[*intent]
}

type indexChange struct {
	at     time.Time
	intent *intent // a copy
}

func (x *searchIndex) add(pi *intent, now time.Time) {
	changed := *pi
	x.pending = append(x.pending, indexChange{now, &changed})
	x.update(now)
}

func (x *searchIndex) update(now time.Time) {
	for len(x.pending) > 0 && now.Sub(x.pending[0].at) >= x.delay {
		x.intents.put(x.pending[0].intent)
		x.pending = x.pending[1:]
	}
}

// A searchPage is a page of search results.
type searchPage struct {
	Object   string    `json:"object"`
	URL      string    `json:"url"`
	HasMore  bool      `json:"has_more"`
	NextPage optional  `json:"next_page"`
	Data     []*intent `json:"data"`
}

func (s *Server) searchIntents(c *call) (effect, *apiError) {
	f := c.form
	f.require("query")
	wanted, parsed := parseQuery(f.text("query", 5000))
	if !parsed {
		f.fail("", "", "We were unable to parse your search query. Try using the format `metadata[\"key\"]:\"value\"` to "+
			"query for metadata. (The stand-in knows no other fields.)")
	}
	limit := f.limit()
	first := 0
	if page := f.ref("page"); page != "" {
		var err error
		if first, err = strconv.Atoi(page); err != nil || first < 0 {
			f.fail("", "page", "Invalid page: "+abbreviate(page))
		}
	}
	if err := f.done(); err != nil {
		return nil, err
	}
	return func() (any, *apiError) {
		s.index.update(s.now())
		found := []*intent{} // newest first
		for _, pi := range slices.Backward(s.index.intents.all) {
			if !slices.ContainsFunc(wanted, func(m [2]string) bool { return pi.Metadata[m[0]] != m[1] }) {
				found = append(found, pi)
			}
		}
		found = found[min(first, len(found)):]
		page := searchPage{Object: "search_result", URL: c.request.URL.Path, Data: found[:min(limit, len(found))]}
		if len(found) > limit {
			page.HasMore, page.NextPage = true, optional(strconv.Itoa(first+limit))
		}
		return page, nil
	}, nil
}

var searchClause = regexp.MustCompile(`^metadata\[(?:"([^"]+)"|'([^']+)')\]:(?:"([^"]*)"|'([^']*)')`)

// parseQuery returns the names and values that a query requires: metadata clauses that are
// joined by AND.
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
