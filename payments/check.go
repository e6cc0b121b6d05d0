package payments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stripe/stripe-go/v79"
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
	return ok && failed.KeyRejected(), err
}

// Lacks returns what the key or its account lacks although Stripe accepts the key, each in a sentence
// for an operator. What a failed call leaves open is not in it, because it would show in use.
func (c *Client) Lacks(ctx context.Context) (lacks []string) {
	for _, object := range []struct{ name, path string }{{"PaymentIntents", intentsPath}, {"Refunds", refundsPath}} {
		if strings.HasPrefix(c.config.SecretKey, "rk_") && c.mayNotWrite(ctx, object.path) {
			lacks = append(lacks, "grant the key Write for "+object.name+": until then, orders and refunds stay unfinished")
		}
	}
	newest := &stripe.EventListParams{CreatedRange: createdRange(time.Now(), time.Time{})} // an empty page
	for _, list := range []struct{ name, path, lack string }{
		{"list_events", "/v1/events", "grant the key Read for Events: until then, refunds and disputes that are made at Stripe are learnt from webhooks only"},
		{"list_disputes", disputesPath, "grant the key Read for Disputes: until then, what changes after a response is not recorded"},
	} {
		failed, ok := errors.AsType[*Error](c.run(ctx, call{name: list.name, method: http.MethodGet, path: list.path, params: newest}, ignore))
		if ok && failed.HTTPStatus == http.StatusForbidden {
			lacks = append(lacks, list.lack)
		}
	}
	var account struct {
		Object         string          `json:"object"`
		Country        lenient[string] `json:"country"`
		ChargesEnabled *bool           `json:"charges_enabled"`
	}
	read := func(text []byte, _ http.Header) error { return json.Unmarshal(text, &account) }
	// A restricted key may not read it.
	err := c.run(ctx, call{name: "get_account", optional: true, method: http.MethodGet, path: "/v1/account"}, read)
	if err != nil || account.Object != "account" {
		return lacks
	}
	if enabled := account.ChargesEnabled; enabled != nil && !*enabled && KeyMode(c.config.SecretKey) == "live" {
		lacks = append(lacks, "activate the account at Stripe: until then, it charges no live card")
	}
	if account.Country.value == "IN" {
		lacks = append(lacks, "an Indian account must send the name and the address of a buyer abroad, which this program does not do: such orders stay unfinished")
	}
	return lacks
}

// mayNotWrite sends a request without its required parameters, which creates nothing. Stripe checks the
// permission before them.
func (c *Client) mayNotWrite(ctx context.Context, path string) bool {
	key := "orders-api-try-" + uuid.NewString() // Stripe stores no response to such a request
	err := c.run(ctx, call{name: "try_write", key: key, optional: true, method: http.MethodPost, path: path}, ignore)
	failed, ok := errors.AsType[*Error](err)
	return ok && failed.HTTPStatus == http.StatusForbidden
}

func ignore([]byte, http.Header) error { return nil }
