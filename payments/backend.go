package payments

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/form"
)

// backend sends requests in place of stripe-go's own code, which repeats them and parses each
// response three times. It follows no redirect, whose target would receive the API key.
type backend struct {
	*stripe.BackendImplementation
	transport http.RoundTripper
}

func (b backend) Call(method, path, key string, params stripe.ParamsContainer, result stripe.LastResponseSetter) error {
	values := &form.Values{}
	form.AppendTo(values, params)
	return b.CallRaw(method, path, key, values, params.GetParams(), result)
}

func (b backend) CallRaw(method, path, key string, values *form.Values, params *stripe.Params, result stripe.LastResponseSetter) error {
	body := values.Encode()
	if method == http.MethodGet && body != "" {
		path, body = path+"?"+body, ""
	}
	req, err := b.NewRequest(method, path, key, "application/x-www-form-urlencoded", params)
	if err != nil {
		return err
	}
	// Without GetBody, net/http cannot resend the request when a reused connection breaks (R13).
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	resp, err := b.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return b.ResponseToError(resp, text)
	}
	if object, ok := result.(json.Unmarshaler); ok {
		return object.UnmarshalJSON(text) // json.Unmarshal would check the syntax first
	}
	return json.Unmarshal(text, result)
}
