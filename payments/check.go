package payments

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/form"
)

// Check lists intents and refunds, to try the secret key. rejected means that Stripe refused the
// key, or its permission to read one of them, so that it can never work.
func (c *Client) Check(ctx context.Context) (rejected bool, err error) {
	now := time.Now() // nothing is newer, so the pages are empty
	if _, _, err = c.List(ctx, now, time.Time{}, ""); err != nil {
		err = fmt.Errorf("read PaymentIntents: %w", err)
	} else if _, _, err = c.ListAllRefunds(ctx, now, time.Time{}, ""); err != nil {
		err = fmt.Errorf("read Refunds: %w", err)
	}
	failed, ok := errors.AsType[*Error](err)
	fromStripe := ok && failed.Type != "" // not from a proxy
	return fromStripe && (failed.HTTPStatus == http.StatusUnauthorized || failed.HTTPStatus == http.StatusForbidden), err
}

// Lacks returns what the key or its account lacks although Stripe accepts the key, each in a sentence
// for an operator. What a failed call leaves open is not in it, because it would show in use.
func (c *Client) Lacks(ctx context.Context) (lacks []string) {
	for _, object := range []struct{ name, path string }{{"PaymentIntents", "/v1/payment_intents"}, {"Refunds", "/v1/refunds"}} {
		if strings.HasPrefix(c.config.SecretKey, "rk_") && c.mayNotWrite(ctx, object.path) {
			lacks = append(lacks, "grant the key Write for "+object.name+": until then, orders and refunds stay unfinished")
		}
	}
	newest := &form.Values{} // an empty page
	newest.Add("created[gte]", strconv.FormatInt(time.Now().Unix(), 10))
	for _, list := range []struct{ name, path, lack string }{
		{"list_events", "/v1/events", "grant the key Read for Events: until then, refunds and disputes that are made at Stripe are learnt from webhooks only"},
		{"list_disputes", "/v1/disputes", "grant the key Read for Disputes: until then, what changes after a response is not recorded"},
	} {
		failed, ok := errors.AsType[*Error](c.read(ctx, call{name: list.name}, list.path, newest, &stripe.APIResource{}))
		if ok && failed.HTTPStatus == http.StatusForbidden {
			lacks = append(lacks, list.lack)
		}
	}
	var account struct {
		stripe.APIResource
		Object         string `json:"object"`
		Country        string `json:"country"`
		ChargesEnabled bool   `json:"charges_enabled"`
	}
	// A restricted key may not read it.
	err := c.read(ctx, call{name: "get_account", optional: true}, "/v1/account", &form.Values{}, &account)
	if err != nil || account.Object != "account" {
		return lacks
	}
	if !account.ChargesEnabled && KeyMode(c.config.SecretKey) == "live" {
		lacks = append(lacks, "activate the account at Stripe: until then, it charges no live card")
	}
	if account.Country == "IN" {
		lacks = append(lacks, "an Indian account must send the name and the address of a buyer abroad, which this program does not do: such orders stay unfinished")
	}
	return lacks
}

// mayNotWrite sends a request without its required parameters, which creates nothing. Stripe checks the
// permission before them.
func (c *Client) mayNotWrite(ctx context.Context, path string) bool {
	key := "orders-api-try-" + uuid.NewString() // Stripe stores no response to such a request
	err := c.run(ctx, call{name: "try_write", key: key, optional: true}, func(ctx context.Context) error {
		return c.api.CallRaw(http.MethodPost, path, c.config.SecretKey, &form.Values{}, &stripe.Params{Context: ctx, IdempotencyKey: &key}, &stripe.APIResource{})
	})
	failed, ok := errors.AsType[*Error](err)
	return ok && failed.HTTPStatus == http.StatusForbidden
}

func (c *Client) read(ctx context.Context, call call, path string, query *form.Values, result stripe.LastResponseSetter) error {
	return c.run(ctx, call, func(ctx context.Context) error {
		return c.api.CallRaw(http.MethodGet, path, c.config.SecretKey, query, &stripe.Params{Context: ctx}, result)
	})
}
