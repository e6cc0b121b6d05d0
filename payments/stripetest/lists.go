package stripetest

import (
	"iter"
	"math"
	"net/http"
	"slices"
	"strings"
)

// An object can be kept in a table.
type object interface {
	id() string
	createdAt() int64
}

// A table stores objects by id and in the order of their creation.
type table[T object] struct {
	byID map[string]T
	all  []T
}

func (t *table[T]) add(o T) {
	if t.byID == nil {
		t.byID = make(map[string]T)
	}
	t.byID[o.id()] = o
	t.all = append(t.all, o)
}

// put adds an object, or replaces the one with its id.
func (t *table[T]) put(o T) {
	if _, known := t.byID[o.id()]; !known {
		t.add(o)
		return
	}
	t.byID[o.id()] = o
	for i, old := range slices.Backward(t.all) {
		if old.id() == o.id() {
			t.all[i] = o
			return
		}
	}
}

func (t *table[T]) get(id string) (T, bool) {
	o, ok := t.byID[id]
	return o, ok
}

// A list is a page of objects. HasMore is never true for an empty page, because
// stripe-go's iterator panics on that.
type list struct {
	Object  string `json:"object"`
	URL     string `json:"url"`
	HasMore bool   `json:"has_more"`
	Data    []any  `json:"data"`
}

// listPage serves a list endpoint: the objects that match, newest first, converted by
// show. The caller has read its own filters.
func listPage[T object](c *call, t *table[T], match func(T) bool, show func(T) any) (effect, *apiError) {
	f := c.form
	limit := readLimit(f)
	after, before := f.ref("starting_after"), f.ref("ending_before")
	if after != "" && before != "" {
		f.fail("", "ending_before", "You cannot parameterize both `starting_after` and `ending_before`.")
	}
	inRange := readCreated(f)
	if err := f.done(); err != nil {
		return nil, err
	}
	for param, cursor := range map[string]string{"starting_after": after, "ending_before": before} {
		if _, ok := t.get(cursor); cursor != "" && !ok {
			kind := strings.TrimSuffix(c.request.URL.Path[len("/v1/"):], "s")
			return nil, missing(http.StatusBadRequest, param, kind, cursor)
		}
	}
	return func() (any, *apiError) {
		found, more := t.page(after, before, limit, func(o T) bool {
			return inRange(o.createdAt()) && match(o)
		})
		page := list{Object: "list", URL: c.request.URL.Path, HasMore: more, Data: []any{}}
		for _, o := range found {
			page.Data = append(page.Data, show(o))
		}
		return page, nil
	}, nil
}

// asIs is the show of an object without expandable properties.
func asIs[T object](o T) any { return o }

// page returns up to limit matching objects, newest first, and whether there are more:
// newer ones if before is set, otherwise older ones.
func (t *table[T]) page(after, before string, limit int, match func(T) bool) (found []T, more bool) {
	at := func(cursor string) int {
		return slices.IndexFunc(t.all, func(o T) bool { return o.id() == cursor })
	}
	if before != "" {
		found, more = take(slices.All(t.all[at(before)+1:]), limit, match)
		slices.Reverse(found)
		return found, more
	}
	older := t.all
	if after != "" {
		older = t.all[:at(after)]
	}
	return take(slices.Backward(older), limit, match)
}

func take[T any](from iter.Seq2[int, T], limit int, match func(T) bool) (found []T, more bool) {
	for _, o := range from {
		if !match(o) {
			continue
		}
		if len(found) == limit {
			return found, true
		}
		found = append(found, o)
	}
	return found, false
}

func readLimit(f *form) int {
	limit, given := f.integer("limit")
	switch {
	case !given:
		return 10
	case limit < 1:
		f.fail("parameter_invalid_integer", "limit", "This value must be greater than or equal to 1.")
	case limit > 100:
		f.fail("parameter_invalid_integer", "limit", "This value must be less than or equal to 100.")
	}
	return int(limit)
}

// readCreated reads created, a Unix time, or created[gt,gte,lt,lte].
func readCreated(f *form) func(created int64) bool {
	from, to := int64(math.MinInt64), int64(math.MaxInt64)
	if v, given := f.integer("created"); given {
		from, to = v, v
	}
	if v, given := f.integer("created[gt]"); given {
		from = max(from, v+1)
	}
	if v, given := f.integer("created[gte]"); given {
		from = max(from, v)
	}
	if v, given := f.integer("created[lt]"); given {
		to = min(to, v-1)
	}
	if v, given := f.integer("created[lte]"); given {
		to = min(to, v)
	}
	return func(created int64) bool { return from <= created && created <= to }
}

func (s *Server) listIntents(c *call) (effect, *apiError) {
	expand := c.form.expands("data.latest_charge")
	all := func(*intent) bool { return true }
	return listPage(c, &s.intents, all, func(pi *intent) any { return pi.view(expand) })
}
