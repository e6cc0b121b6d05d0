package stripetest_test

import (
	"net/http"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

const (
	searchPath = intentsPath + "/search"
	ofOrder1   = `metadata['order_id']:'order-1'`
)

func (s *standIn) search(query string, more ...string) reply {
	values := url.Values{"query": {query}}
	for i := 0; i < len(more); i += 2 {
		values.Set(more[i], more[i+1])
	}
	return s.get(searchPath + "?" + values.Encode())
}

// The index lags: a search does not find a new intent, and returns an old state of others.
func TestSearch_delay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ option, delay time.Duration }{
		"default": {0, time.Minute},
		"outage":  {time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(1_000_000, 0)
			s := start(t, stripetest.Options{Clock: func() time.Time { return now }, SearchDelay: test.option})
			id := s.create(unconfirmed)
			s.Advance(test.delay - time.Second)
			found, _ := ids(t, s.search(ofOrder1))
			require.Empty(t, found)
			require.Equal(t, http.StatusOK, s.post(intentsPath+"/"+id+"/confirm", "", "off_session=true").status)
			for _, status := range []string{"requires_confirmation", "succeeded"} {
				s.Advance(time.Second)
				page := s.search(ofOrder1)
				found, _ := ids(t, page)
				require.Equal(t, []string{id}, found)
				require.Contains(t, page.body, `"status": "`+status+`"`)
				s.Advance(test.delay)
			}
		})
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{SearchDelay: -1})
	var made []string // newest first
	for range 3 {
		made = append([]string{s.create(unconfirmed)}, made...)
	}
	other := s.create(newCard + "pm_card_visa&metadata[order_id]=order-2&metadata[shop]=tea")
	for query, want := range map[string][]string{
		ofOrder1:                         made,
		`metadata["order_id"]:"order-1"`: made,
		`metadata['order_id']:'order-2'`: {other},
		`metadata['order_id']:"order-2" AND metadata["shop"]:'tea'`: {other},
		`metadata['order_id']:'order-1' AND metadata['shop']:'tea'`: nil,
		`metadata['order_id']:'order'`:                              nil,
	} {
		found, more := ids(t, s.search(query))
		require.Equal(t, want, found, query)
		require.False(t, more)
	}

	first := s.search(ofOrder1, "limit", "2")
	found, more := ids(t, first)
	require.Equal(t, made[:2], found)
	require.True(t, more)
	require.Equal(t, "search_result", first.field("object"))
	require.Equal(t, searchPath, first.field("url"))
	second := s.search(ofOrder1, "limit", "2", "page", first.field("next_page"))
	found, more = ids(t, second)
	require.Equal(t, made[2:], found)
	require.False(t, more)
	require.Empty(t, second.field("next_page"))
}

func TestSearch_invalid(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	for _, query := range []string{
		"order-1", "metadata['order_id']", "metadata[order_id]:'order-1'", "metadata['order_id']:order-1", "metadata['order_id'='order-1'",
		ofOrder1 + " OR " + ofOrder1, ofOrder1 + " AND ", ofOrder1 + " ", "-" + ofOrder1, "status:'succeeded'",
	} {
		requireError(t, s.search(query), http.StatusBadRequest, "", "")
	}
	requireError(t, s.get(searchPath), http.StatusBadRequest, "parameter_missing", "query")
	requireError(t, s.search(ofOrder1, "limit", "101"), http.StatusBadRequest, "parameter_invalid_integer", "limit")
	requireError(t, s.search(ofOrder1, "page", "x"), http.StatusBadRequest, "", "page")
	requireError(t, s.search(ofOrder1, "created[gte]", "1"), http.StatusBadRequest, "parameter_unknown", "created[gte]")
}

// The state file has no delays: the next process finds its intents at once.
func TestSearch_afterRestart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "state")
	before := start(t, stripetest.Options{})
	require.NoError(t, before.Persist(file))
	id := before.create(visa)
	after := start(t, stripetest.Options{})
	require.NoError(t, after.Persist(file))
	found, _ := ids(t, after.search(ofOrder1))
	require.Equal(t, []string{id}, found)
}

func TestSearch_notOffered(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	s.Inject(stripetest.Rule{Fault: stripetest.NoSearch, Times: stripetest.Always})
	require.Equal(t, http.StatusOK, s.get(intentsPath).status)
	requireError(t, s.search(ofOrder1), http.StatusBadRequest, "", "")
}
