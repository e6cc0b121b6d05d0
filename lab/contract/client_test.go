package contract_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
)

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
