package orders_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/stretchr/testify/require"
)

// behind does something at the provider behind our back, and returns the answer.
func (s *shop) behind(path string, form url.Values) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, strings.NewReader(form.Encode()))
	require.NoError(s.t, err)
	req.Header.Set("Authorization", "Bearer sk_test_somebody_else")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	require.Contains(s.t, []int{http.StatusOK, http.StatusPaymentRequired}, resp.StatusCode)
	var a answer
	require.NoError(s.t, json.NewDecoder(resp.Body).Decode(&a))
	return a
}

// answer is an intent, as far as a test needs it, or nothing after a decline.
type answer struct {
	ID            string `json:"id"`
	PaymentMethod string `json:"payment_method"`
}

// intentPath is where the provider keeps the intent.
func (s *shop) intentPath() string {
	s.t.Helper()
	id := s.order().PaymentIntentID
	require.NotNil(s.t, id)
	return "/v1/payment_intents/" + *id
}

// intent is one at the provider.
type intent struct {
	ID       string            `json:"id"`
	Status   string            `json:"status"`
	Metadata map[string]string `json:"metadata"`
}

// intents lists what is at the provider, newest first.
func (s *shop) intents() []intent {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+"/v1/payment_intents?limit=100", nil)
	require.NoError(s.t, err)
	req.Header.Set("Authorization", "Bearer sk_test_somebody_else")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	var page struct {
		Data []intent `json:"data"`
	}
	require.NoError(s.t, json.NewDecoder(resp.Body).Decode(&page))
	return page.Data
}
