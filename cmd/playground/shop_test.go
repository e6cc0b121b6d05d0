package main_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/migrations/dbtest"
)

// playground run serves the example shop with the Stripe.js of the fake, or with Stripe's own if
// the environment has both test keys.
func TestRun_shop(t *testing.T) {
	t.Parallel()
	_, provider := programtest.FakeStripe(t)
	own := "STRIPE_SECRET_KEY=sk_test_dev STRIPE_API_BASE=" + provider
	for name, test := range map[string]struct {
		settings string
		script   string // "" if there is no shop
	}{
		"fake":     {"", `src="http://127.0.0.1:`},
		"Stripe":   {own + " SHOP_STRIPE_PUBLISHABLE_KEY=pk_test_1", `src="https://js.stripe.com/v3/"`},
		"live key": {own + " SHOP_STRIPE_PUBLISHABLE_KEY=pk_live_1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _ := startRun(t, programtest.Environ(t, append(strings.Fields(test.settings), "DATABASE_URL="+dbtest.URL(dbtest.Empty(t)), "LISTEN_ADDR=127.0.0.1:0")...))
			defer a.Stop()
			if test.script == "" {
				a.WaitFor(&a.Stdout, "Shop         off: set SHOP_STRIPE_PUBLISHABLE_KEY")
				status, _ := programtest.Get(t, a.Base+"/shop")
				require.Equal(t, http.StatusNotFound, status)
				return
			}
			shop := a.WaitFor(&a.Stdout, `Shop         (http://\S+)`)[1]
			jar, err := cookiejar.New(nil)
			require.NoError(t, err)
			browser := http.Client{Timeout: programtest.WaitTimeout, Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
			response, err := browser.PostForm(shop+"/basket", url.Values{"tea": {"1"}})
			require.NoError(t, err)
			defer response.Body.Close()
			page, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Contains(t, string(page), test.script)
		})
	}
}
