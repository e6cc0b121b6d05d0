package stripetest

import (
	"net/http"
	"regexp"
	"slices"
	"time"
)

const searchIntents = "GET /v1/payment_intents/search"

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
	query := metadataQuery.FindStringSubmatch(f.text("query"))
	if query == nil {
		f.fail("", "", "We were unable to parse your search query. Try using the format `metadata[\"key\"]:\"value\"` to "+
			"query for metadata. (The fake knows no other queries.)")
	}
	limit := f.limit()
	if err := f.done(); err != nil {
		return nil, err
	}
	name, value := query[1]+query[2], query[3]+query[4]
	return func() (any, *apiError) {
		found := []*intent{} // newest first
		for _, pi := range slices.Backward(s.intents.all()) {
			v := pi.indexed(s.now().Add(-s.options.SearchDelay))
			if v != nil && v.Metadata[name] == value {
				found = append(found, v)
			}
		}
		return list[*intent]{
			Object: "search_result", URL: c.request.URL.Path, HasMore: len(found) > limit, Data: found[:min(limit, len(found))],
		}, nil
	}, nil
}

var metadataQuery = regexp.MustCompile(`^metadata\[(?:"([^"]+)"|'([^']+)')\]:(?:"([^"]*)"|'([^']*)')$`)

func searchNotOffered() *apiError {
	return invalidRequest(http.StatusBadRequest, "", "", "The search feature is temporarily unavailable in your region.")
}
