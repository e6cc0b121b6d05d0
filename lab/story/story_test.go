// Package story_test writes the tables of docs/how-it-works.md: the row of a key, its order
// and its payment at each moment of two real requests.
package story_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

const page = "../../docs/how-it-works.md"

// writing allows one test at a time to write the page.
var writing sync.Mutex

var update = flag.Bool("update", false, "write the tables of docs/how-it-works.md")

func TestMain(m *testing.M) { os.Exit(dbtest.Main{M: m}.Run()) }

// story is the table of one request, whose runs all have this idempotency key.
type story struct {
	*orderstest.Shop
	t      *testing.T
	rows   []string
	tokens map[string]string // names of lease tokens
	pause  time.Duration     // how long ago the request began, beside the seconds that the test took
}

const (
	order = `{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",` +
		`"items":[{"sku":"tea","quantity":1,"unit_amount":2500}]}`
	lockTimeout = 90 * time.Second
	header      = "| moment | at Stripe | recovery point | lease token | locked at | response code | order |\n" +
		"| --- | --- | --- | --- | --- | --- | --- |\n"
)

func newStory(t *testing.T) *story {
	t.Helper()
	s := &story{t: t, tokens: map[string]string{}}
	var commits int
	s.Shop = orderstest.New(t, orderstest.Options{Engine: idempotency.Config{
		LockTimeout: lockTimeout,
		OnStep: func(ctx context.Context, start idempotency.StepStart) (context.Context, func(idempotency.StepEnd)) {
			if start.RunNumber > 1 {
				s.record("takeover")
			}
			return ctx, func(end idempotency.StepEnd) {
				if end.Err == nil {
					commits++
					s.record(fmt.Sprintf("transaction %d", commits))
				}
			}
		},
	}})
	return s
}

// post sends the same request each time.
func (s *story) post(ctx context.Context) (idempotency.Result, error) {
	return s.Create(ctx, idempotency.Request{
		AccountID: s.Account, Key: "4f1d3c52-basket-17", Method: http.MethodPost, Path: "/v1/orders", Params: []byte(order),
	})
}

// record adds the state of this moment.
func (s *story) record(moment string) {
	var point, token, order string
	var lockedFor *time.Duration
	var code *int
	var intent *string
	require.NoError(s.t, s.Pool.QueryRow(context.Background(), `
SELECT k.recovery_point, k.lease_token::text, now() - k.locked_at, k.response_code, o.status, o.payment_intent_id
  FROM idempotency_keys AS k
  JOIN orders AS o USING (account_id, idempotency_key)`).Scan(&point, &token, &lockedFor, &code, &order, &intent))
	if s.tokens[token] == "" {
		s.tokens[token] = []string{"7c1e…", "b2f0…"}[len(s.tokens)]
	}
	locked, response := "NULL", "NULL"
	if lockedFor != nil {
		started := s.pause - lockedFor.Round(lockTimeout)
		locked = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).Add(max(started, 0)).Format("15:04:05")
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
	intents := 0
	for _, request := range s.Stripe.Requests() {
		if request.Endpoint == "POST /v1/payment_intents" {
			intents++
		}
	}
	switch {
	case len(charged) > 0:
		return strings.Join(charged, ", ")
	case intents > 0:
		return "an intent"
	default:
		return "nothing"
	}
}

func TestPaid(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	result, err := s.post(t.Context())
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, result.Response.Status)
	s.compare("paid")
}

func TestCrash(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	held := s.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: "POST /v1/payment_intents/{id}/confirm"})
	first := make(chan error, 1)
	go func() {
		_, err := s.post(context.WithoutCancel(t.Context()))
		first <- err
	}()
	<-held.Reached()
	s.record("the process stops")

	_, err := s.post(t.Context())
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	s.record("a retry: 409")

	s.pause = lockTimeout
	_, err = s.Pool.Exec(t.Context(), "UPDATE idempotency_keys SET locked_at = locked_at - $1::interval", lockTimeout+time.Second)
	require.NoError(t, err)

	result, err := s.post(t.Context())
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, result.Response.Status)

	held.Release() // the process was only paused
	require.ErrorIs(t, <-first, idempotency.ErrLeaseLost)
	s.record("`lease_lost`")
	require.Len(t, s.Stripe.Charges(), 1)
	s.compare("crash")
}

// compare requires the table of the page between its markers, or writes it.
func (s *story) compare(name string) {
	s.t.Helper()
	writing.Lock()
	defer writing.Unlock()
	text, err := os.ReadFile(page)
	require.NoError(s.t, err)
	marked := regexp.MustCompile(`(?s)(<!-- rows:begin ` + name + ` -->\n).*?(<!-- rows:end -->\n)`)
	require.True(s.t, marked.Match(text), "the page has no table %s", name)
	table := header + strings.Join(s.rows, "")
	want := marked.ReplaceAllString(string(text), "${1}"+strings.ReplaceAll(table, "$", "$$")+"${2}")
	if *update {
		require.NoError(s.t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	require.Equal(s.t, want, string(text), "make -C lab generate writes the tables")
}
