package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/migrations/dbtest"
)

type consoleView struct {
	Key   string
	Phase string
	Error string
	Asks  bool
	Steps []struct {
		Columns []struct{ Name, Value string }
	}
	Designs []consoleDesign
	Events  []consoleEvent
	Checks  []struct {
		Text     string
		OK       bool
		Observed string
	}
}

type consoleEvent struct{ Lane, Text, Detail string }

type consoleDesign struct {
	Title           string
	Charges, Orders int
	Lines           []string
}

// column returns the values that a column of the row has at each step.
func (v consoleView) column(name string) (values []string) {
	for _, step := range v.Steps {
		for _, column := range step.Columns {
			if column.Name == name {
				values = append(values, column.Value)
			}
		}
	}
	return values
}

func (v consoleView) timeline() string {
	var b strings.Builder
	for _, e := range v.Events {
		b.WriteString(e.Lane + ": " + e.Text + " (" + e.Detail + ")\n")
	}
	return b.String()
}

// designs returns "charges/paid orders" of three designs: a lock with a cached response, one call with the
// provider's key, and this service. The first also has its response to the retry.
func (v consoleView) designs() string {
	var texts []string
	for i, d := range v.Designs {
		text := fmt.Sprintf("%d/%d", d.Charges, d.Orders)
		if i == 0 {
			text += strings.TrimPrefix(d.Lines[1], "The same request again:")
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

type consoleAPI struct {
	*programtest.API
	browser http.Client
}

func openConsole(p *programtest.Process) *consoleAPI {
	p.T.Helper()
	match := p.WaitFor(&p.Stdout, `Console +((http://\S+)/console\?token=(\S+)) `)
	jar, err := cookiejar.New(nil)
	require.NoError(p.T, err)
	a := &consoleAPI{&programtest.API{Process: p, Base: match[2]}, http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}}
	response, err := a.browser.Get(match[1])
	require.NoError(p.T, err)
	require.NoError(p.T, response.Body.Close())
	require.Equal(p.T, "/console", response.Request.URL.RequestURI(), "the token is no longer in the URL")
	require.NotContains(p.T, p.Stderr.String(), match[3], "the token is in no log")
	return a
}

// console sends a request of the console's page.
func (a *consoleAPI) console(method, path, form string) (status int, body []byte) {
	a.T.Helper()
	request, err := http.NewRequestWithContext(a.T.Context(), method, a.Base+path, strings.NewReader(form))
	require.NoError(a.T, err)
	request.Header.Set("Origin", a.Base)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := a.browser.Do(request)
	require.NoError(a.T, err)
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	require.NoError(a.T, err)
	return response.StatusCode, body
}

func (a *consoleAPI) post(path, form string) int {
	a.T.Helper()
	status, _ := a.console(http.MethodPost, path, form)
	return status
}

// watchConsole returns a function that waits for the next view in which the customer must
// decide, or for the end of the next play.
func (a *consoleAPI) watchConsole() func() consoleView {
	last, asked := "", ""
	return func() (view consoleView) {
		a.T.Helper()
		programtest.EventuallyEvery(a.T, 50*time.Millisecond, func() bool { // each view queries the database and the provider
			_, data := a.console(http.MethodGet, "/console/play", "")
			view = consoleView{}
			require.NoError(a.T, json.Unmarshal(data, &view))
			require.NotContains(a.T, string(data), "_secret_", "the client secret")
			if view.Asks && view.Key != asked {
				asked = view.Key
				return true
			}
			done := view.Phase != "" && view.Phase != "running" && view.Key != last
			if done {
				last = view.Key
			}
			return done
		})
		return view
	}
}

func TestConsole(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t)
	p := programtest.Start(t, programtest.Environ(t, "DATABASE_URL="+dbtest.URL(pool), "LISTEN_ADDR=127.0.0.1:0"), "run", "--provider-latency", "0s")
	a := openConsole(p)
	a.Key = p.WaitFor(&p.Stdout, `API key +(ok_\S+)`)[1]
	p.WaitFor(&p.Stderr, "listening")

	const visa, asking = "pm_card_visa", "pm_card_threeDSecure2Required"
	next := a.watchConsole()
	for _, test := range []struct {
		card, fault, customer string
		checks                int
		events                []string
		designs               string
	}{
		{visa, "none", "", 5, []string{"row: order_created", "row: charge_created", "row: finished", "mail: the receipt is accepted"}, "1/1 201, 1/1, 1/1"},
		{visa, "lost", "", 7, []string{"but the connection breaks", "the connection breaks)", "gets 503", "the connection is restored", "run 2 takes over"}, "2/1 201, 1/1, 1/1"},
		{visa, "killed", "", 6, []string{"SIGKILL", "gets no response", "started again", "run 2 takes over", "gets 201"}, "2/1 409: in progress, 1/1, 1/1"},
		{visa, "error", "", 6, nil, "2/1 201, 1/0, 1/1"},
		{visa, "late", "", 7, nil, "2/1 201, 2/1, 1/1"},
		{asking, "error", "decline", 8, []string{": 500 after", "gets 202", "the customer declines", "cancel the intent", "gets 402"}, ""},
		{asking, "killed", "approve", 7, []string{"SIGKILL", "gets 202", "started again", "run 2 takes over", "gets 201"}, ""},
	} {
		require.Equal(t, http.StatusAccepted, a.post("/console/play", "card="+test.card+"&fault="+test.fault))
		view := next()
		where := test.card + ", " + test.fault + ", " + test.customer
		if test.customer != "" {
			require.True(t, view.Asks, where)
			require.Equal(t, http.StatusUnprocessableEntity, a.post("/console/decision", "decision=pay"))
			require.Equal(t, http.StatusAccepted, a.post("/console/decision", "decision="+test.customer))
			require.Equal(t, http.StatusConflict, a.post("/console/decision", "decision=approve"), "only once")
			view = next()
		}
		require.Equal(t, "done", view.Phase, "%s: %s", where, view.Error)
		require.Len(t, view.Checks, test.checks, where)
		for _, check := range view.Checks {
			require.True(t, check.OK, "%s: %s: %s", where, check.Text, check.Observed)
		}
		for _, part := range test.events {
			require.Contains(t, view.timeline(), part, where)
		}
		require.Equal(t, test.designs, view.designs(), where)
		points := slices.Compact(view.column("recovery_point"))
		require.Equal(t, []string{"order_created", "charge_created", "finished"}, points, where)
		if test.fault == "killed" && test.card == visa {
			requireCrashedRow(t, view)
		}
		pays := test.card == visa || test.customer == "approve"
		require.Equal(t, pays, slices.Contains(view.column("at Stripe"), "charged $25.00"), where)
		require.Equal(t, pays, strings.Contains(view.timeline(), "mail: the receipt is accepted"), where)
	}
	var left int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_namespace WHERE nspname IN ('lock_design', 'one_call_design')").Scan(&left))
	require.Zero(t, left, "the tables of the earlier designs are dropped")
	// The API process of the console does not keep playground run from stopping.
	a.Stop()
	a.RequireNoProcessLeft()
}

// requireCrashedRow requires that the row has the values that docs/how-it-works.md shows for a crash.
func requireCrashedRow(t *testing.T, view consoleView) {
	t.Helper()
	require.Equal(t, []string{"order_created", "order_created", "charge_created", "charge_created", "charge_created", "finished"}, view.column("recovery_point"))
	require.Equal(t, []string{"nothing", "an intent, nothing charged", "charged $25.00"}, slices.Compact(view.column("at Stripe")))
	require.Equal(t, []string{"NULL", "201"}, slices.Compact(view.column("response_code")))
	require.Equal(t, []string{"pending", "paid"}, slices.Compact(view.column("order status")))
	tokens := slices.Compact(view.column("lease_token"))
	require.Len(t, tokens, 2, "the retry has a token of its own")
	for _, token := range tokens {
		require.Regexp(t, `^[0-9a-f]{4}…$`, token, "no whole token is shown")
	}
}
