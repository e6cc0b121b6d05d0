package contract_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/client"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders"
)

const validOrder = `{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",` +
	`"items":[{"sku":"tea","description":"Assam","quantity":2,"unit_amount":1250}],"metadata":{"note":"blue"}}`

// FuzzOrderRequest compares the decoder with the contract's schema. The schema does not
// express the total, the list of currencies and the names of metadata.
func FuzzOrderRequest(f *testing.F) {
	doc, err := openapi3.NewLoader().LoadFromData(ordersapi.Spec)
	require.NoError(f, err)
	schema := doc.Components.Schemas["OrderRequest"].Value
	beyondSchema := regexp.MustCompile(`the total must be|the name must be|a currency that Stripe supports`)
	f.Add([]byte(validOrder))
	for _, address := range []string{
		"a@b.c", "a@b", "ada@", "a.b@example.com", "a..b@example.com", ".a@example.com", "a.@example.com", "ada@-example.com", "ada@example-.com",
		"ada@exa_mple.com", "ada@example..com", "ada@example.com.", "!#$%&'*+/=?^_`{|}~-@example.com", `"a b"@example.com`, "ada@[127.0.0.1]",
		"ada@xn--exmple-cua.com", "ada@exämple.com", "ada@example.com\n", "ada@1.2", strings.Repeat("a", 64) + "@example.com",
		strings.Repeat("a", 65) + "@example.com", "a@" + strings.Repeat("d", 63) + ".com", "a@" + strings.Repeat("d", 64) + ".com",
		"a@" + strings.Repeat("d.", 125) + "dd", "a@" + strings.Repeat("d.", 125) + "ddd",
	} {
		email, err := json.Marshal(address)
		require.NoError(f, err)
		f.Add([]byte(strings.Replace(validOrder, `"ada@example.com"`, string(email), 1)))
	}
	for _, edit := range [][2]string{
		{`"usd"`, `"us\n"`},
		{`"usd"`, `"usd\n"`},
		{`"pm_card_visa"`, `"pm_card_visa\n"`},
		{`"quantity":2`, `"quantity":1.5`},
		{`"quantity":2`, `"quantity":1e-400`},
		{`"quantity":2,"unit_amount":1250`, `"quantity":2.0,"unit_amount":1e2`},
		{`"quantity":2,"unit_amount":1250`, `"quantity":10000,"unit_amount":99999999`}, // the total is too large
		{`"tea"`, `"a\u0085b"`},
		{`"tea"`, `"a\u2028b"`},
		{`"tea"`, `"` + strings.Repeat("😀", 64) + `"`},
		{`"tea"`, `"` + strings.Repeat("😀", 65) + `"`},
		{`"Assam"`, `""`},
		{`"Assam"`, "null"},
		{`"description":"Assam",`, ""},
		{`"sku":"tea",`, ""},
		{`"metadata":{"note":"blue"}`, `"metadata":null`},
		{`{"note":"blue"}`, `{"a":1}`},
		{`{"note":"blue"}`, `{"":"x"}`},
		{`{"note":"blue"}`, `{"\u0000":"\u0000\r\n","b":""}`},
		{`"metadata":{"note":"blue"}`, `"EMAIL":"x@example.com"`},
	} {
		f.Add([]byte(strings.Replace(validOrder, edit[0], edit[1], 1)))
	}
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa","items":[]}`))
	for _, n := range []int{64, 65, 251, 252, 500, 501} { // the longest texts
		text := strings.Repeat("x", n)
		f.Add([]byte(strings.Replace(validOrder, "pm_card_visa", "pppppppppp_"+text[11:], 1)))
		for _, name := range []string{"sku", "description"} {
			f.Add([]byte(strings.Replace(validOrder, `"`+name+`":"`, `"`+name+`":"`+text, 1)))
		}
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		params, err := idempotency.Canonicalize(request)
		if err != nil {
			return
		}
		_, rejection := orders.DecodeOrderRequest(params)
		var value any
		require.NoError(t, json.Unmarshal(request, &value)) // as sent
		forbidden := schema.VisitJSON(value, openapi3.VisitAsRequest())
		if forbidden != nil {
			require.Error(t, rejection, "%v", forbidden)
			return
		}
		var invalid *httpjson.InvalidError
		if rejection != nil {
			require.ErrorAs(t, rejection, &invalid)
			for _, fault := range invalid.Fields {
				require.Regexp(t, beyondSchema, fault.Detail, fault.Pointer)
			}
		}
	})
}

// FuzzResponse checks that only a 201 with a JSON object is a success, and that only a
// problem with a known retry member is final.
func FuzzResponse(f *testing.F) {
	f.Add(uint16(201), "application/json", "", []byte(`{"id":"o1"}`))
	f.Add(uint16(402), "application/problem+json", "", []byte(`{"retry":"new-key","outcome":"final","order_id":"o1"}`))
	f.Add(uint16(401), "application/problem+json; charset=utf-8", "", []byte(`{"retry":"corrected","outcome":"none"}`))
	f.Add(uint16(422), "application/problem+json", "", []byte(`{"retry":"never","outcome":"unheard-of"}`))
	f.Add(uint16(503), "application/problem+json", "2", []byte(`{"retry":"same-key"}`))
	f.Add(uint16(502), "text/html", "Fri, 20 Nov 2026 09:30:00 GMT", []byte(`<h1>Bad Gateway</h1>`))
	f.Add(uint16(201), "application/json", "99999999999999999999", []byte(`{"id":"o1"} {`))
	f.Fuzz(func(t *testing.T, status uint16, contentType, retryAfter string, body []byte) {
		ctx, cancel := context.WithCancel(t.Context())
		c, err := client.New(client.Config{
			BaseURL: "http://orders.example.com",
			APIKey:  "k",
			Observe: func(client.Attempt) { cancel() }, // one attempt
			Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: int(status),
					Header:     http.Header{"Content-Type": {contentType}, "Retry-After": {retryAfter}},
					Body:       io.NopCloser(bytes.NewReader(body)),
					Request:    r,
				}, nil
			}),
		})
		require.NoError(t, err)
		response, err := c.Do(ctx, client.Request{Key: client.NewKey(), Path: "/v1/orders", Body: []byte("{}")})

		mediaType, _, _ := mime.ParseMediaType(contentType)
		var members map[string]any
		isObject := json.Unmarshal(body, &members) == nil && members != nil
		var (
			problem *client.Problem
			unknown *client.OutcomeUnknownError
		)
		switch {
		case err == nil:
			require.True(t, status == http.StatusCreated && mediaType == "application/json" && isObject, "%s", response)
			require.Equal(t, body, response.Body)
		case errors.As(err, &problem):
			require.True(t, mediaType == "application/problem+json" && isObject, "%s", body)
			require.Contains(t, []client.Retry{client.RetryCorrected, client.RetryNewKey, client.RetryNever}, problem.Retry)
			require.True(t, hasRetry(members, string(problem.Retry)), "%s", body)
		default:
			require.ErrorAs(t, err, &unknown)
		}
	})
}

// hasRetry reports whether retry has this value. Like encoding/json it ignores case.
func hasRetry(members map[string]any, retry string) bool {
	for name, value := range members {
		if strings.EqualFold(name, "retry") && value == retry {
			return true
		}
	}
	return false
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
