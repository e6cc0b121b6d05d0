package stripetest

import (
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

type object interface{ id() string }

type table[T object] struct {
	byID map[string]T
	ids  []string
}

func (t *table[T]) put(o T) {
	if t.byID == nil {
		t.byID = make(map[string]T)
	}
	if _, known := t.byID[o.id()]; !known {
		t.ids = append(t.ids, o.id())
	}
	t.byID[o.id()] = o
}

func (t *table[T]) all() []T {
	objects := make([]T, len(t.ids))
	for i, id := range t.ids {
		objects[i] = t.byID[id]
	}
	return objects
}

// A list is a page of objects. HasMore is never true for an empty page: stripe-go
// panics.
type list[T any] struct {
	Object  string `json:"object"`
	URL     string `json:"url"`
	HasMore bool   `json:"has_more"`
	Data    []T    `json:"data"`
}

func listPage[T interface {
	object
	createdAt() int64
}](c *call, t *table[T], match func(T) bool) (effect, *apiError) {
	f := c.form
	limit := f.limit()
	after := f.text("starting_after")
	from, _ := f.integer("created[gte]")
	to, bounded := f.integer("created[lte]")
	if !bounded {
		to = math.MaxInt64
	}
	if err := f.done(); err != nil {
		return nil, err
	}
	if _, ok := t.byID[after]; after != "" && !ok {
		kind := strings.TrimSuffix(c.request.URL.Path[len("/v1/"):], "s")
		return nil, missing(http.StatusBadRequest, "starting_after", kind, after)
	}
	return func() (any, *apiError) {
		older := t.ids
		if after != "" {
			older = t.ids[:slices.Index(t.ids, after)]
		}
		page := list[T]{Object: "list", URL: c.request.URL.Path, Data: []T{}}
		for _, id := range slices.Backward(older) {
			o := t.byID[id]
			if o.createdAt() < from {
				break // the others are older
			}
			if o.createdAt() > to || !match(o) {
				continue
			}
			if len(page.Data) == limit {
				page.HasMore = true
				break
			}
			page.Data = append(page.Data, o)
		}
		return page, nil
	}, nil
}

func (s *Server) listIntents(c *call) (effect, *apiError) {
	return listPage(c, &s.intents, func(*intent) bool { return true })
}

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

// putIntent stores an intent. A search finds it by the metadata that it began with.
func (s *Server) putIntent(pi *intent) {
	if s.intents.byID[pi.ID] == nil {
		for name, value := range pi.Metadata {
			pair := [2]string{name, value}
			s.searchable[pair] = append(s.searchable[pair], pi.ID)
		}
	}
	s.intents.put(pi)
}

// searchIntents returns the first page only. It sets has_more, but has no next_page.
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
		for _, id := range slices.Backward(s.searchable[[2]string{name, value}]) {
			if v := s.intents.byID[id].indexed(s.now().Add(-s.options.SearchDelay)); v != nil {
				found = append(found, v)
			}
		}
		return list[*intent]{
			Object: "search_result", URL: c.request.URL.Path, HasMore: len(found) > limit, Data: found[:min(limit, len(found))],
		}, nil
	}, nil
}

var metadataQuery = regexp.MustCompile(`^metadata\[(?:"([^"]+)"|'([^']+)')\]:(?:"([^"]*)"|'([^']*)')$`)

func searchNotOffered(*call) *apiError {
	return invalidRequest(http.StatusBadRequest, "", "", "The search feature is temporarily unavailable in your region.")
}
