package stripetest_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

const (
	searchPath = intentsPath + "/search"
	ofOrder1   = `metadata['order_id']:'order-1'`
)

func (s *fake) search(query string) reply {
	query, more, _ := strings.Cut(query, "&")
	return s.get(searchPath + "?query=" + url.QueryEscape(query) + "&" + more)
}

// The index lags: a search does not find a new intent, and returns an old state of others.
func TestSearch_delay(t *testing.T) {
	t.Parallel()
	for option, delay := range map[time.Duration]time.Duration{0: time.Minute, time.Hour: time.Hour} {
		s := start(t, stripetest.Options{Clock: func() time.Time { return time.Unix(1_000_000, 0) }, SearchDelay: option})
		id := s.create(unconfirmed)
		s.Advance(delay - time.Second)
		found, _ := idsOf(t, s.search(ofOrder1))
		require.Empty(t, found)
		require.Equal(t, http.StatusOK, s.post(intentsPath+"/"+id+"/confirm", "", "off_session=true").status)
		for _, status := range []string{"requires_confirmation", "succeeded"} {
			s.Advance(time.Second)
			page := s.search(ofOrder1)
			found, _ := idsOf(t, page)
			require.Equal(t, []string{id}, found)
			require.Contains(t, page.body, `"status": "`+status+`"`)
			s.Advance(delay)
		}
	}
}
