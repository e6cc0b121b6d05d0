// Package story_test writes parts of docs/how-it-works.md: the row of a key, its order and its payment at each
// moment of a request whose process is killed, and a program that has the design in its smallest form.
package story_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
	"example.com/orders-api/payments/stripetest"
)

const page = "../../docs/how-it-works.md"

// writing allows one test at a time to write the page.
var writing sync.Mutex

var update = flag.Bool("update", false, "write these parts of docs/how-it-works.md")

func TestMain(m *testing.M) { os.Exit(labtest.Main{M: m}.Run()) }

const (
	key           = "4f1d3c52-basket-17"
	leaseDuration = 90 * time.Second // the default

	create  = "POST /v1/payment_intents"
	confirm = "POST /v1/payment_intents/{id}/confirm"
	read    = "GET /v1/payment_intents/{id}"

	header = "| moment | at Stripe | recovery point | lease token | locked at | response code | order |\n" +
		"| --- | --- | --- | --- | --- | --- | --- |\n"
)

// story is the table of one request to a process of the program.
type story struct {
	*labtest.Fixture
	rows   []string
	tokens map[string]string // names of lease tokens
	leases []time.Time       // their starts, each of which is shown a second after the one before
	pause  time.Duration     // added to these
}

func newStory(t *testing.T) *story {
	t.Helper()
	return &story{Fixture: labtest.NewFixture(t), tokens: map[string]string{}}
}

// serve starts a process whose calls to Stripe outlast the moments at which they are held.
func (s *story) serve() *programtest.API { return s.Serve(s.With("STEP_TIMEOUT=80s")) }

// hold stops the next request to an endpoint when it arrives there.
func (s *story) hold(endpoint string) *stripetest.Injection {
	return s.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldArrival, Endpoint: endpoint})
}

// reached records the moment at which the program has sent the held request, and lets it continue.
func (s *story) reached(held *stripetest.Injection, moment string) {
	<-held.Reached()
	s.record(moment)
	held.Release()
}

// record adds the state of this moment.
func (s *story) record(moment string) {
	s.T.Helper()
	var point, token, order string
	var lockedAt *time.Time
	var code *int
	var intent *string
	require.NoError(s.T, s.Pool.QueryRow(s.T.Context(), `
SELECT k.recovery_point, k.lease_token::text, k.locked_at, k.response_code, o.status, o.payment_intent_id
  FROM idempotency_keys AS k
  JOIN orders AS o USING (account_id, idempotency_key)`).Scan(&point, &token, &lockedAt, &code, &order, &intent))
	if s.tokens[token] == "" {
		s.tokens[token] = []string{"7c1e…", "b2f0…"}[len(s.tokens)]
	}
	locked, response := "NULL", "NULL"
	if lockedAt != nil {
		if !slices.ContainsFunc(s.leases, lockedAt.Equal) {
			s.leases = append(s.leases, *lockedAt)
		}
		second := slices.IndexFunc(s.leases, lockedAt.Equal)
		locked = time.Date(2026, 1, 1, 12, 0, second, 0, time.UTC).Add(s.pause).Format("15:04:05")
	}
	if code != nil {
		response = fmt.Sprint(*code)
	}
	if intent != nil {
		order += ", pi_1"
	}
	s.rows = append(s.rows, fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s |\n",
		moment, s.atStripe(), point, s.tokens[token], locked, response, order))
}

func (s *story) atStripe() string {
	var charged []string
	for _, charge := range s.Stripe.Charges() {
		charged = append(charged, fmt.Sprintf("charged $%d.%02d", charge.Amount/100, charge.Amount%100))
	}
	if len(charged) > 0 {
		return strings.Join(charged, ", ")
	}
	for _, request := range s.Stripe.Requests() {
		if request.Endpoint == create && request.Executed {
			return "an intent"
		}
	}
	return "nothing"
}

// stopAfterCharge is the story of a process that gets this signal when the card is charged.
func stopAfterCharge(t *testing.T, signal syscall.Signal) (s *story, stopped *programtest.API, end func() int) {
	t.Helper()
	s = newStory(t)
	created, confirmed := s.hold(create), s.hold(confirm)
	charged := s.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: confirm})
	stopped = s.serve()
	first := stopped.OrderAsync(key)
	s.reached(created, "transaction 1")
	s.reached(confirmed, "transaction 2")
	<-charged.Reached()
	stopped.Signal(signal)
	s.record("the process stops")

	second := s.serve()
	require.Equal(t, http.StatusConflict, second.MustOrder(key, programtest.Tea).Status)
	s.record("a retry: 409")

	s.pause = leaseDuration
	s.Exec("UPDATE idempotency_keys SET locked_at = locked_at - $1::interval", leaseDuration+time.Second)
	reading := s.hold(read)
	third := second.OrderAsync(key)
	s.reached(reading, "takeover")
	programtest.RequirePaid(t, (<-third).Response)
	s.record("transaction 3")
	require.Len(t, s.Stripe.Charges(), 1)
	compare(t, "crash", header+strings.Join(s.rows, ""))
	return s, stopped, func() int {
		charged.Release()
		return (<-first).Status
	}
}

func TestCrash(t *testing.T) {
	t.Parallel()
	_, killed, end := stopAfterCharge(t, syscall.SIGKILL)
	killed.Wait()
	require.Zero(t, end(), "no response")
}

// The process was only paused. It wakes, and its write fails.
func TestPause(t *testing.T) {
	t.Parallel()
	s, paused, end := stopAfterCharge(t, syscall.SIGSTOP)
	paused.Signal(syscall.SIGCONT)
	require.Equal(t, http.StatusConflict, end())
	paused.WaitFor(&paused.Stderr, "outcome=lease_lost")
	last := s.rows[len(s.rows)-1]
	s.record("transaction 3")
	require.Equal(t, last, s.rows[len(s.rows)-1])
}

// compare requires the text of the page between its markers, or writes it.
func compare(t *testing.T, name, text string) {
	t.Helper()
	writing.Lock()
	defer writing.Unlock()
	old, err := os.ReadFile(page)
	require.NoError(t, err)
	marked := regexp.MustCompile(`(?s)(<!-- story:begin ` + name + ` -->\n).*?(<!-- story:end -->\n)`)
	require.True(t, marked.Match(old), "the page has no part %s", name)
	want := marked.ReplaceAllString(string(old), "${1}"+strings.ReplaceAll(text, "$", "$$")+"${2}")
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(old), "make -C lab generate writes the page")
}
