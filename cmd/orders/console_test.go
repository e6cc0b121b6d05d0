package main_test

import (
	"bufio"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/payments/stripetest"
)

// consoleView is the part of the console's view that these tests check.
type consoleView struct {
	Key      string
	Phase    string
	Error    string
	Asks     bool
	Row      *struct{ Point string }
	Points   []struct{ Name string }
	Events   []struct{ Lane, Text, Detail string }
	Requests []struct {
		Title, Curl string
		Answers     []struct{ Status int }
		Body        string
	}
	Ledger []struct{ Charged bool }
	Mails  []struct{ To string }
	Checks []struct {
		Text string
		OK   bool
		Seen string
	}
}

// timeline returns all events of the timeline.
func (v consoleView) timeline() string {
	var b strings.Builder
	for _, e := range v.Events {
		b.WriteString(e.Lane + ": " + e.Text + " (" + e.Detail + ")\n")
	}
	return b.String()
}

// consoleAPI is dev with a client of its console.
type consoleAPI struct {
	*api
	browser http.Client
}

// openConsole opens the printed URL like a browser, which then has the cookie.
func (p *process) openConsole() *consoleAPI {
	p.t.Helper()
	match := p.waitFor(&p.stdout, `Console +((http://\S+)/console\?token=(\S+)) `)
	jar, err := cookiejar.New(nil)
	require.NoError(p.t, err)
	a := &consoleAPI{&api{process: p, base: match[2]}, http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}}
	response, err := http.Get(a.base + "/console")
	require.NoError(p.t, err)
	require.NoError(p.t, response.Body.Close())
	require.Equal(p.t, http.StatusForbidden, response.StatusCode, "without the token")
	response, err = a.browser.Get(match[1])
	require.NoError(p.t, err)
	require.NoError(p.t, response.Body.Close())
	require.Equal(p.t, http.StatusOK, response.StatusCode)
	require.Equal(p.t, "/console", response.Request.URL.RequestURI(), "the token is no longer in the URL")
	require.NotContains(p.t, p.stderr.String(), match[3], "the token is in no log")
	return a
}

// console sends a request to the page's server.
func (a *consoleAPI) console(method, path, body string, header http.Header) (*http.Response, error) {
	request, err := http.NewRequestWithContext(a.t.Context(), method, a.base+path, strings.NewReader(body))
	require.NoError(a.t, err)
	maps.Copy(request.Header, header)
	return a.browser.Do(request)
}

// orderInConsole places an order like the page, and returns the status.
func (a *consoleAPI) orderInConsole(card, failure string) int {
	a.t.Helper()
	return a.postToConsole("/console/plays", `{"card":"`+card+`","failure":"`+failure+`"}`)
}

// postToConsole sends JSON like the page, and returns the status.
func (a *consoleAPI) postToConsole(path, body string) int {
	a.t.Helper()
	response, err := a.console(http.MethodPost, path, body, http.Header{"Origin": {a.base}, "Content-Type": {"application/json"}})
	require.NoError(a.t, err)
	require.NoError(a.t, response.Body.Close())
	return response.StatusCode
}

// watchConsole reads the page's stream. The function it returns returns the next view
// in which the bank asks, or the final view of the next play.
func (a *consoleAPI) watchConsole() func() consoleView {
	a.t.Helper()
	response, err := a.console(http.MethodGet, "/console/plays", "", nil)
	require.NoError(a.t, err)
	a.t.Cleanup(func() { _ = response.Body.Close() })
	require.Equal(a.t, "text/event-stream", response.Header.Get("Content-Type"))
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	last, asked := "", ""
	return func() consoleView {
		a.t.Helper()
		for lines.Scan() {
			data, found := strings.CutPrefix(lines.Text(), "data: ")
			if !found {
				continue
			}
			var view consoleView
			require.NoError(a.t, json.Unmarshal([]byte(data), &view))
			require.NotContains(a.t, data, "_secret_", "the client secret")
			if view.Asks && view.Key != asked {
				asked = view.Key
				return view
			}
			if view.Phase != "running" && view.Key != last {
				last = view.Key
				return view
			}
		}
		require.NoError(a.t, lines.Err())
		require.Fail(a.t, "the stream ended")
		return consoleView{}
	}
}

func TestConsole(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t)
	p := start(t, environ(t, "DATABASE_URL="+dbtest.URL(pool), "LISTEN_ADDR=127.0.0.1:0"), "dev", "--provider-latency", "0s")
	a := p.openConsole()
	a.key = p.waitFor(&p.stdout, `API key +(ok_\S+)`)[1]
	p.waitFor(&p.stderr, "listening")

	response, err := a.console(http.MethodGet, "/console", "", nil)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Contains(t, response.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; style-src 'self'; ")

	const visa, broke, asking = "pm_card_visa", "pm_card_visa_chargeDeclinedInsufficientFunds", "pm_card_threeDSecure2Required"
	next := a.watchConsole()
	for _, test := range []struct {
		card, failure, customer string
		checks                  int
		events                  []string
	}{
		{visa, "none", "", 5, []string{"row: order_created", "row: charge_created", "row: finished", "mail: the receipt is accepted"}},
		{broke, "none", "", 5, []string{"payment failed, answer stored", "402"}},
		{visa, "lost", "", 7, []string{"but the line is cut", "does not get through", "gets 503", "the line is mended", "run 2 takes over"}},
		{visa, "error", "", 6, []string{": 500 after", "read the intent"}},
		{visa, "killed", "", 6, []string{"SIGKILL", "gets no answer", "started again", "gets 409", "run 2 takes over", "gets 201"}},
		{visa, "twins", "", 6, []string{"20 times at once", "has all the answers"}},
		{visa, "other", "", 6, []string{"gets 422"}},
		{asking, "none", "approve", 6, []string{"requires_action", "gets 202", "the customer approves", "the card is charged", "gets 201"}},
		{asking, "none", "decline", 7, []string{"gets 202", "the customer declines", "cancel the intent", "gets 402"}},
		{asking, "none", "close", 7, []string{"gets 202", "the customer closes the window", "orders completer", "cancel the intent", "gets 422"}},
		{asking, "lost", "approve", 8, []string{"gets 503", "gets 202", "gets 201"}},
		{asking, "error", "decline", 8, []string{": 500 after", "gets 402"}},
		{asking, "killed", "approve", 7, []string{"gets 202", "SIGKILL", "the customer approves", "started again", "gets 201"}},
		{asking, "killed", "close", 8, []string{"SIGKILL", "orders completer", "started again", "gets 422"}},
		{asking, "twins", "approve", 7, []string{"20 times at once", "has all the answers", "the customer approves", "gets 201"}},
		{asking, "other", "decline", 8, []string{"gets 402", "gets 422"}},
	} {
		require.Equal(t, http.StatusAccepted, a.orderInConsole(test.card, test.failure))
		view := next()
		where := test.card + ", " + test.failure + ", " + test.customer
		if test.customer != "" {
			require.True(t, view.Asks, where)
			require.Equal(t, http.StatusUnprocessableEntity, a.postToConsole("/console/customer", `{"response":"pay"}`))
			require.Equal(t, http.StatusAccepted, a.postToConsole("/console/customer", `{"response":"`+test.customer+`"}`))
			require.Equal(t, http.StatusConflict, a.postToConsole("/console/customer", `{"response":"approve"}`), "only once")
			view = next()
		}
		require.Equal(t, "done", view.Phase, "%s: %s", where, view.Error)
		require.Len(t, view.Checks, test.checks, where)
		for _, check := range view.Checks {
			require.True(t, check.OK, "%s: %s: %s", where, check.Text, check.Seen)
		}
		for _, part := range test.events {
			require.Contains(t, view.timeline(), part, where)
		}
		require.Equal(t, "finished", view.Row.Point, where)
		require.Len(t, view.Points, 4, where)
		require.Len(t, view.Ledger, 1, where)
		pays := test.card == visa || test.customer == "approve"
		require.Equal(t, pays, view.Ledger[0].Charged, where)
		require.Equal(t, pays, len(view.Mails) == 1, where)
		requireCurlReplays(t, a.key, view)
		last := view.Requests[len(view.Requests)-1].Body
		require.Equal(t, test.customer == "close", strings.Contains(last, "charge_window_over"), where)
	}
	require.Equal(t, http.StatusUnprocessableEntity, a.orderInConsole("pm_card_nobody", "none"))
	require.Equal(t, http.StatusUnprocessableEntity, a.orderInConsole(visa, "earthquake"))

	// An open stream and the console's API process do not block a stop.
	a.stop()
	a.requireNoProcessLeft()
}

// requireCurlReplays sends the last command line of a view, and expects the response
// that the view shows.
func requireCurlReplays(t *testing.T, apiKey string, view consoleView) {
	t.Helper()
	last := view.Requests[len(view.Requests)-1]
	again := sendCurl(t, "API_KEY="+apiKey+"\n"+last.Curl)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, last.Answers[len(last.Answers)-1].Status, again.status)
	require.Equal(t, last.Body, again.body)
}

// With another provider, the page disables the failure and the card that need the
// stand-in.
func TestConsole_onStripe(t *testing.T) {
	t.Parallel()
	stripe, provider := standIn(t)
	env := environ(t, "DATABASE_URL="+dbtest.URL(dbtest.Empty(t)), "STRIPE_SECRET_KEY=sk_test_console", "STRIPE_API_BASE="+provider,
		"LISTEN_ADDR=127.0.0.1:0")
	p := start(t, env, "dev", "--provider-latency", "0s")
	a := p.openConsole()
	p.waitFor(&p.stderr, "listening")
	response, err := a.console(http.MethodGet, "/console", "", nil)
	require.NoError(t, err)
	defer response.Body.Close()
	var page strings.Builder
	_, err = bufio.NewReader(response.Body).WriteTo(&page)
	require.NoError(t, err)
	require.Contains(t, page.String(), `value="error" disabled`)
	require.Contains(t, page.String(), "Stripe does not fail on demand")
	require.Equal(t, http.StatusUnprocessableEntity, a.orderInConsole("pm_card_visa", "error"))
	require.Contains(t, page.String(), `value="pm_card_threeDSecure2Required" disabled`)
	require.Equal(t, http.StatusUnprocessableEntity, a.orderInConsole("pm_card_threeDSecure2Required", "none"))

	next := a.watchConsole()
	hold := stripe.Inject(stripetest.Rule{Fault: stripetest.HoldArrival})
	require.Equal(t, http.StatusAccepted, a.orderInConsole("pm_card_visa", "none"))
	require.Equal(t, http.StatusConflict, a.orderInConsole("pm_card_visa", "none"), "one at a time")
	hold.Release()
	view := next()
	require.Equal(t, "done", view.Phase, view.Error)
	for _, check := range view.Checks {
		require.True(t, check.OK, "%s: %s", check.Text, check.Seen)
	}
	require.Len(t, stripe.Charges(), 1)
	a.stop()
}
