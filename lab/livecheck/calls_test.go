package livecheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/paymentintent"
	"github.com/stripe/stripe-go/v79/refund"
)

const amount = 2000 // of each intent, in cents

type outcome struct {
	response string // status, and the error's type, code, decline code and parameter
	headers  string // those of Stripe's idempotency layer
	object   string // the state of the intent or refund, of an error's intent too
}

func (o outcome) String() string {
	return fmt.Sprintf("%s | %s | %s", o.response, cmp.Or(o.headers, "-"), cmp.Or(o.object, "-"))
}

// A call sends one request. After an error there is nothing to compare.
type call struct {
	name string
	send func(*session) (outcome, error)
}

type session struct {
	ctx     context.Context
	intents paymentintent.Client
	refunds refund.Client
	keys    string          // prefix of the check's idempotency keys
	used    map[string]bool // keys that were sent
	intent  string          // of the latest new key
	created int64           // of the intent, by the provider's clock
	method  string          // the latest one of an intent
	refund  string
}

func newSession(ctx context.Context, backend stripe.Backend, apiKey, keys string) *session {
	return &session{
		ctx:     ctx,
		intents: paymentintent.Client{B: backend, Key: apiKey},
		refunds: refund.Client{B: backend, Key: apiKey},
		keys:    keys,
		used:    make(map[string]bool),
	}
}

// params returns parameters with the idempotency key of a name. An empty name is a new
// key.
func (s *session) params(key string) stripe.Params {
	key = cmp.Or(key, fmt.Sprint(len(s.used)))
	s.used[key] = true
	return stripe.Params{Context: s.ctx, IdempotencyKey: stripe.String(s.keys + "-" + key)}
}

func create(key, card string, change ...func(*session, *stripe.PaymentIntentParams)) call {
	return call{"create " + card, func(s *session) (outcome, error) {
		if !s.used[key] {
			s.intent = ""
		}
		p := &stripe.PaymentIntentParams{
			Params:        s.params(key),
			Amount:        stripe.Int64(amount),
			Currency:      stripe.String("usd"),
			PaymentMethod: stripe.String(card),
			AutomaticPaymentMethods: &stripe.PaymentIntentAutomaticPaymentMethodsParams{
				Enabled:        stripe.Bool(true),
				AllowRedirects: stripe.String("never"),
			},
			Description: stripe.String("stripe-check"),
			Metadata:    map[string]string{"order_id": "stripe-check"},
		}
		for _, change := range change {
			change(s, p)
		}
		return s.intentOutcome(s.intents.New(p))
	}}
}

func offSession(p *stripe.PaymentIntentConfirmParams)   { p.OffSession = stripe.Bool(true) }
func useStripeSDK(p *stripe.PaymentIntentConfirmParams) { p.UseStripeSDK = stripe.Bool(true) }

func withCard(card string) func(*stripe.PaymentIntentConfirmParams) {
	return func(p *stripe.PaymentIntentConfirmParams) { p.PaymentMethod = stripe.String(card) }
}

func confirm(key string, change ...func(*stripe.PaymentIntentConfirmParams)) call {
	return call{"confirm", func(s *session) (outcome, error) {
		p := &stripe.PaymentIntentConfirmParams{Params: s.params(key)}
		for _, change := range change {
			change(p)
		}
		return s.intentOutcome(s.intents.Confirm(s.intent, p))
	}}
}

func cancel(key string) call {
	return call{"cancel", func(s *session) (outcome, error) {
		return s.intentOutcome(s.intents.Cancel(s.intent, &stripe.PaymentIntentCancelParams{Params: s.params(key)}))
	}}
}

func get() call {
	return call{"read", func(s *session) (outcome, error) {
		return s.intentOutcome(s.intents.Get(s.intent, &stripe.PaymentIntentParams{Params: stripe.Params{Context: s.ctx}}))
	}}
}

func unknown(c call) call {
	return call{c.name + " an unknown intent", func(s *session) (outcome, error) {
		s.intent = "pi_3Unknown000000000000000"
		return c.send(s)
	}}
}

func list() call {
	return call{"list intents", func(s *session) (outcome, error) {
		it := s.intents.List(&stripe.PaymentIntentListParams{
			ListParams:   stripe.ListParams{Context: s.ctx, Limit: stripe.Int64(100), Single: true},
			CreatedRange: &stripe.RangeQueryParams{GreaterThanOrEqual: s.created},
		})
		if it.Err() != nil {
			return s.outcome(nil, "", it.Err())
		}
		page := it.PaymentIntentList()
		for _, pi := range page.Data {
			if pi.ID == s.intent {
				return s.outcome(page.LastResponse, s.describe(pi), nil)
			}
		}
		return s.outcome(page.LastResponse, "not in the list", nil)
	}}
}

// search repeats a query until it finds the intent, because the index lags, normally by a
// minute.
func search(query string) call {
	return call{"search intents by " + query, func(s *session) (outcome, error) {
		for deadline := time.Now().Add(3 * time.Minute); ; {
			it := s.intents.Search(&stripe.PaymentIntentSearchParams{
				SearchParams: stripe.SearchParams{Context: s.ctx, Limit: stripe.Int64(100), Single: true, Query: query},
			})
			if it.Err() != nil {
				return s.outcome(nil, "", it.Err())
			}
			page := it.PaymentIntentSearchResult()
			for _, pi := range page.Data {
				if pi.ID == s.intent {
					return s.outcome(page.LastResponse, s.describe(pi), nil)
				}
			}
			if time.Now().After(deadline) {
				return s.outcome(page.LastResponse, "not found", nil)
			}
			select {
			case <-time.After(time.Second):
			case <-s.ctx.Done():
				return outcome{}, s.ctx.Err()
			}
		}
	}}
}

// makeRefund refunds a part of the intent, or the rest if cents is 0.
func makeRefund(key string, cents int64) call {
	return call{"refund", func(s *session) (outcome, error) {
		p := &stripe.RefundParams{
			Params:        s.params(key),
			PaymentIntent: stripe.String(s.intent),
			Reason:        stripe.String("requested_by_customer"),
			Metadata:      map[string]string{"refund_id": "stripe-check"},
		}
		if cents > 0 {
			p.Amount = stripe.Int64(cents)
		}
		return s.refundOutcome(s.refunds.New(p))
	}}
}

func getRefund() call {
	return call{"read the refund", func(s *session) (outcome, error) {
		return s.refundOutcome(s.refunds.Get(s.refund, &stripe.RefundParams{Params: stripe.Params{Context: s.ctx}}))
	}}
}

func listRefunds() call {
	return call{"list refunds of", func(s *session) (outcome, error) {
		it := s.refunds.List(&stripe.RefundListParams{
			ListParams:    stripe.ListParams{Context: s.ctx, Single: true},
			PaymentIntent: stripe.String(s.intent),
		})
		if it.Err() != nil {
			return s.outcome(nil, "", it.Err())
		}
		page := it.RefundList()
		return s.outcome(page.LastResponse, fmt.Sprintf("%d refunds", len(page.Data)), nil)
	}}
}

func (s *session) intentOutcome(pi *stripe.PaymentIntent, err error) (outcome, error) {
	if err != nil {
		return s.outcome(nil, "", err)
	}
	return s.outcome(pi.LastResponse, s.describe(pi), nil)
}

func (s *session) refundOutcome(re *stripe.Refund, err error) (outcome, error) {
	if err != nil {
		return s.outcome(nil, "", err)
	}
	s.refund = re.ID
	object := fmt.Sprintf("refund of %d, %s", re.Amount, re.Status)
	if re.PaymentIntent == nil || re.PaymentIntent.ID != s.intent {
		object += ", of another intent"
	}
	return s.outcome(re.LastResponse, object, nil)
}

// describe returns the state of an intent, without ids and the client secret.
func (s *session) describe(pi *stripe.PaymentIntent) string {
	state := []string{string(pi.Status)}
	add := func(condition bool, word string) {
		if condition {
			state = append(state, word)
		}
	}
	add(s.intent != "" && pi.ID != s.intent, "another intent")
	s.intent, s.created = cmp.Or(s.intent, pi.ID), pi.Created
	if pi.PaymentMethod != nil {
		s.method = pi.PaymentMethod.ID
	}
	add(pi.Amount != amount || pi.Currency != stripe.CurrencyUSD || pi.Metadata["order_id"] != "stripe-check", "other contents")
	add(pi.PaymentMethod != nil && pi.Status != stripe.PaymentIntentStatusCanceled, "payment method")
	add((pi.CanceledAt != 0) != (pi.Status == stripe.PaymentIntentStatusCanceled), "another canceled_at")
	add(pi.LatestCharge != nil, "charge")
	add(pi.AmountReceived != 0, fmt.Sprintf("received %d", pi.AmountReceived))
	if pi.NextAction != nil {
		add(true, string(pi.NextAction.Type))
		add(strings.HasPrefix(pi.ClientSecret, pi.ID+"_secret_"), "client secret")
	}
	if last := pi.LastPaymentError; last != nil {
		add(true, strings.TrimSpace("failed: "+string(last.Code)+" "+string(last.DeclineCode)))
	}
	return strings.Join(state, ", ")
}

// outcome converts a response or an error. It omits the error's text, which can contain
// the client secret.
func (s *session) outcome(response *stripe.APIResponse, object string, err error) (outcome, error) {
	if err == nil {
		return outcome{fmt.Sprint(response.StatusCode), idempotencyHeaders(response.Header), object}, nil
	}
	var failure *stripe.Error
	var network *net.OpError
	switch {
	case s.ctx.Err() != nil:
		return outcome{}, s.ctx.Err()
	case errors.As(err, &network):
		return outcome{}, fmt.Errorf("no response: %w", network)
	case errors.Is(err, context.DeadlineExceeded):
		return outcome{}, errors.New("no response in time")
	case !errors.As(err, &failure) || failure.LastResponse == nil:
		return outcome{}, errors.New("no response that Stripe would send")
	case failure.HTTPStatusCode == http.StatusUnauthorized:
		return outcome{}, errors.New("the key was rejected (401)")
	case failure.HTTPStatusCode == http.StatusForbidden:
		return outcome{}, errors.New("the key has not all permissions (403): it must write PaymentIntents, and Charges and Refunds")
	}
	words := []string{fmt.Sprint(failure.HTTPStatusCode), string(failure.Type), string(failure.Code), string(failure.DeclineCode)}
	if failure.Param != "" {
		words = append(words, "("+failure.Param+")")
	}
	if failure.PaymentIntent != nil {
		object = s.describe(failure.PaymentIntent)
	}
	words = slices.DeleteFunc(words, func(word string) bool { return word == "" })
	return outcome{strings.Join(words, " "), idempotencyHeaders(failure.LastResponse.Header), object}, nil
}

func idempotencyHeaders(h http.Header) string {
	var found []string
	for _, name := range []string{"Idempotent-Replayed", "Stripe-Should-Retry"} {
		if value := h.Get(name); value != "" {
			found = append(found, name+": "+value)
		}
	}
	return strings.Join(found, ", ")
}
