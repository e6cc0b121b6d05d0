//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// chargeable reports whether an intent is charged or can be.
func (p *provider) chargeable(ctx context.Context, intent string) bool {
	var object struct{ Status string }
	_, body, err := p.call(ctx, http.MethodGet, "/v1/payment_intents/"+intent, nil)
	return err != nil || json.Unmarshal(body, &object) != nil || object.Status != "canceled"
}

// refund refunds what is left of a charge, as an operator does in Stripe's dashboard. A
// repetition finds nothing left.
func (p *provider) refund(ctx context.Context, intent string) error {
	status, body, err := p.call(ctx, http.MethodPost, "/v1/refunds", url.Values{"payment_intent": {intent}})
	if err == nil && status != http.StatusOK && !strings.Contains(string(body), "charge_already_refunded") {
		err = errors.New(string(body))
	}
	return err
}

// call repeats a request to the provider while it fails.
func (p *provider) call(ctx context.Context, method, path string, form url.Values) (status int, body []byte, err error) {
	for range 60 {
		request, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(form.Encode()))
		if err != nil {
			return 0, nil, err
		}
		request.Header.Set("Authorization", "Bearer sk_test_operator")
		if method == http.MethodPost {
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		if response, err := p.client.Do(request); err == nil {
			body, err = io.ReadAll(response.Body)
			_ = response.Body.Close()
			status = response.StatusCode
			if temporary := []int{http.StatusConflict, http.StatusTooManyRequests}; err == nil && status < 500 && !slices.Contains(temporary, status) {
				return status, body, nil
			}
		}
		if !pause(ctx, 500*time.Millisecond) {
			return 0, nil, ctx.Err()
		}
	}
	return 0, nil, errors.New("the provider fails")
}
