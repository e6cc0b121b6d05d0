package stripetest_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// ids returns the ids of a list and has_more.
func ids(t *testing.T, r reply) (found []string, more bool) {
	t.Helper()
	require.Equal(t, http.StatusOK, r.status, r.body)
	var page struct {
		HasMore bool `json:"has_more"`
		Data    []struct{ ID string }
	}
	require.NoError(t, json.Unmarshal([]byte(r.body), &page))
	require.NotNil(t, page.Data)
	require.False(t, page.HasMore && len(page.Data) == 0, "stripe-go panics on it")
	for _, o := range page.Data {
		found = append(found, o.ID)
	}
	return found, page.HasMore
}

func TestList_pages(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	var made []string // newest first
	for range 7 {
		made = append([]string{s.create(unconfirmed)}, made...)
		s.Advance(time.Minute)
	}
	tests := map[string]struct {
		query string
		want  []string
		more  bool
	}{
		"all of it":                {"", made, false},
		"the first page":           {"limit=3", made[:3], true},
		"the next page":            {"limit=3&starting_after=" + made[2], made[3:6], true},
		"the last page":            {"limit=3&starting_after=" + made[5], made[6:], false},
		"a last page that is full": {"limit=3&starting_after=" + made[3], made[4:], false},
		"after the last":           {"starting_after=" + made[6], nil, false},
		"the page before":          {"limit=3&ending_before=" + made[6], made[3:6], true},
		"the first page, backward": {"limit=3&ending_before=" + made[3], made[:3], false},
		"before the first":         {"ending_before=" + made[0], nil, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			found, more := ids(t, s.get(intentsPath+"?"+test.query))
			require.Equal(t, test.want, found)
			require.Equal(t, test.more, more)
		})
	}
	require.Equal(t, intentsPath, s.get(intentsPath).field("url"))
}

func TestList_filters(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	s := start(t, stripetest.Options{Clock: func() time.Time { return now }})
	first := s.create(unconfirmed)
	s.Advance(10 * time.Second)
	second := s.create(unconfirmed)
	s.Advance(10 * time.Second)
	third := s.create(visa)
	require.Equal(t, http.StatusPaymentRequired, s.post(intentsPath, "", decline).status)
	found, _ := ids(t, s.get(intentsPath))
	fourth := found[0]

	tests := map[string]struct {
		query string
		want  []string
	}{
		"at":      {"created=1000010", []string{second}},
		"gt":      {"created[gt]=1000010", []string{fourth, third}},
		"gte":     {"created[gte]=1000010", []string{fourth, third, second}},
		"lt":      {"created[lt]=1000010", []string{first}},
		"lte":     {"created[lte]=1000010", []string{second, first}},
		"between": {"created[gt]=1000000&created[lt]=1000020", []string{second}},
		"never":   {"created[gt]=1000010&created[lt]=1000010", nil},
		"limited": {"limit=1&created[gt]=1000010", []string{fourth}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			found, more := ids(t, s.get(intentsPath+"?"+test.query))
			require.Equal(t, test.want, found)
			require.Equal(t, name == "limited", more)
		})
	}

	found, _ = ids(t, s.get("/v1/charges"))
	require.Len(t, found, 2, "the failed one too")
	found, _ = ids(t, s.get("/v1/charges?payment_intent="+third))
	require.Len(t, found, 1)

	r := s.get(intentsPath + "?limit=1&created[gt]=1000010&expand[0]=data.latest_charge")
	require.Contains(t, r.body, `"object": "charge"`)
}

func TestList_invalid(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	id := s.create(unconfirmed)
	for query, want := range map[string]struct{ code, param string }{
		"limit=0":             {"parameter_invalid_integer", "limit"},
		"limit=101":           {"parameter_invalid_integer", "limit"},
		"limit=x":             {"parameter_invalid_integer", "limit"},
		"created[gte]=x":      {"parameter_invalid_integer", "created[gte]"},
		"created[after]=1":    {"parameter_unknown", "created[after]"},
		"starting_after=pi_x": {"resource_missing", "starting_after"},
		"ending_before=pi_x":  {"resource_missing", "ending_before"},
		"customer=cus_x":      {"parameter_unknown", "customer"},
		"starting_after=" + id + "&ending_before=x": {"", "ending_before"},
		"expand[0]=latest_charge":                   {"", "expand"},
	} {
		requireError(t, s.get(intentsPath+"?"+query), http.StatusBadRequest, want.code, want.param)
	}
	requireError(t, s.get("/v1/charges?payment_intent=pi_x"), http.StatusBadRequest, "resource_missing", "payment_intent")
	requireError(t, s.get("/v1/charges/ch_x"), http.StatusNotFound, "resource_missing", "id")
}
