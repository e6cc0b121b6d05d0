package stripetest_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func idsOf(t *testing.T, r reply) (found []string, more bool) {
	t.Helper()
	require.Equal(t, http.StatusOK, r.status, r.body)
	var page struct {
		HasMore bool `json:"has_more"`
		Data    []struct{ ID string }
	}
	require.NoError(t, json.Unmarshal([]byte(r.body), &page))
	require.NotNil(t, page.Data)
	require.False(t, page.HasMore && len(page.Data) == 0, "stripe-go panics")
	for _, o := range page.Data {
		found = append(found, o.ID)
	}
	return found, page.HasMore
}

func TestList(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	s := start(t, stripetest.Options{Clock: func() time.Time { return now }})
	var made []string // newest first
	for range 7 {
		made = append([]string{s.create(unconfirmed)}, made...)
		s.Advance(10 * time.Second)
	}
	for name, test := range map[string]struct {
		query string
		want  []string
		more  bool
	}{
		"all":               {"", made, false},
		"first page":        {"limit=3", made[:3], true},
		"next page":         {"limit=3&starting_after=" + made[2], made[3:6], true},
		"last page, full":   {"limit=3&starting_after=" + made[3], made[4:], false},
		"after the last":    {"starting_after=" + made[6], nil, false},
		"between":           {"created[gte]=1000020&created[lte]=1000040", made[2:5], false},
		"empty range":       {"created[gte]=1000041&created[lte]=1000049", nil, false},
		"limit and a range": {"limit=1&created[gte]=1000010", made[:1], true},
	} {
		found, more := idsOf(t, s.get(intentsPath+"?"+test.query))
		require.Equal(t, test.want, found, name)
		require.Equal(t, test.more, more, name)
	}
	require.Equal(t, intentsPath, s.get(intentsPath).field("url"))
}
