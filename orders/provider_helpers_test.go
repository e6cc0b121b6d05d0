package orders_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/stretchr/testify/require"
)

// outOfBand sends a request to the provider that does not come from our service.
func (f *fixture) outOfBand(path string, form url.Values) providerObject {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, f.url+path, strings.NewReader(form.Encode()))
	require.NoError(f.t, err)
	req.Header.Set("Authorization", "Bearer sk_test_another_program")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(f.t, err)
	defer resp.Body.Close()
	require.Contains(f.t, []int{http.StatusOK, http.StatusPaymentRequired}, resp.StatusCode)
	var a providerObject
	require.NoError(f.t, json.NewDecoder(resp.Body).Decode(&a))
	return a
}

// providerObject is the intent that outOfBand returns, empty after a decline.
type providerObject struct {
	ID            string `json:"id"`
	PaymentMethod string `json:"payment_method"`
}

// intentPath is the path of the order's intent at the provider.
func (f *fixture) intentPath() string {
	f.t.Helper()
	id := f.getOrder().PaymentIntentID
	require.NotNil(f.t, id)
	return "/v1/payment_intents/" + *id
}

// intent is an intent at the provider.
type intent struct {
	ID       string            `json:"id"`
	Status   string            `json:"status"`
	Metadata map[string]string `json:"metadata"`
}

// intents lists the provider's intents, newest first.
func (f *fixture) intents() []intent {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.url+"/v1/payment_intents?limit=100", nil)
	require.NoError(f.t, err)
	req.Header.Set("Authorization", "Bearer sk_test_another_program")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(f.t, err)
	defer resp.Body.Close()
	var page struct {
		Data []intent `json:"data"`
	}
	require.NoError(f.t, json.NewDecoder(resp.Body).Decode(&page))
	return page.Data
}
