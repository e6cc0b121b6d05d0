package api_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
)

func TestCreateOrder_malformedBody(t *testing.T) {
	t.Parallel()
	whole := orderBody()
	f := newFixture(t)
	key := newKey()
	before := f.rowCounts(t)
	for name, text := range map[string]string{
		"empty":            "",
		"half an object":   whole[:len(whole)/2],
		"duplicate member": `{"currency":"eur",` + whole[1:],
		"too many values":  `{"x":[1` + strings.Repeat(",1", 9_999) + `],` + whole[1:],
		"lost digits":      strings.Replace(whole, `"quantity":1,`, `"quantity":1.0000000000000001,`, 1),
	} {
		got := f.create(t, key, text, header("Content-Type", "application/json"))
		require.Equal(t, http.StatusBadRequest, got.status, "%s: %s", name, got.body)
		require.Equal(t, "malformed-request", got.problem(t).slug(), name)
		require.Equal(t, key, got.header.Get("Idempotency-Key"), name)
		require.Less(t, len(got.body), 1000, name)
	}
	require.Equal(t, before, f.rowCounts(t))
	require.Equal(t, http.StatusCreated, f.create(t, key, whole).status, "the key was not used")
}

func TestValidationFailed_codes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := openContract(t)
	code := c.doc.Components.Schemas["Errors"].Value.Items.Value.Properties["code"].Value
	sent := map[any]response{
		"required":            f.create(t, newKey(), `{}`),
		"unknown_member":      f.create(t, newKey(), orderBody(withMember("status", "paid"))),
		"invalid_type":        f.create(t, newKey(), orderBody(withMember("email", 1))),
		"invalid_format":      f.create(t, newKey(), orderBody(withMember("payment_method", "4242424242424242"))),
		"invalid_value":       f.create(t, newKey(), orderBody(withMember("currency", "xxx"))),
		"too_short":           f.create(t, newKey(), orderBody(withMember("items", []any{}))),
		"too_long":            f.create(t, newKey(), orderBody(withMember("currency", "usdt"))),
		"out_of_range":        f.create(t, newKey(), orderBody(withMember("items", []any{map[string]any{"sku": "A", "quantity": 0, "unit_amount": 100}}))),
		"unknown_parameter":   f.get(t, "/v1/orders?page=2"),
		"duplicate_parameter": f.get(t, "/v1/orders?limit=1&limit=1"),
		"not_found":           f.get(t, "/v1/orders?after="+uuid.NewString()),
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(sent)), code.Enum)
	for want, got := range sent {
		p := got.problem(t)
		require.Equal(t, want, p.Errors[0].Code)
		require.Contains(t, code.Description, "`"+p.Errors[0].Code+"`")
	}
}

func TestCreateOrder_mediaType(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.Equal(t, http.StatusCreated, f.create(t, newKey(), orderBody(),
		header("Content-Type", `Application/JSON; charset="UTF-8"; v=1`), header("Content-Encoding", "Identity")).status)
	before := f.rowCounts(t)
	for coding, edits := range map[string][]requestEdit{
		"": {
			header("Content-Type"),
			header("Content-Type", "text/plain"),
			header("Content-Type", "application/json; charset=iso-8859-1"),
			header("Content-Type", "application/json", "application/json"),
		},
		"identity": {header("Content-Encoding", "identity", "gzip")},
	} {
		for _, e := range edits {
			for _, got := range []response{f.create(t, newKey(), orderBody(), e), f.deliver(t, "{}", "", e)} {
				require.Equal(t, "unsupported-media-type", got.problem(t).slug(), "%s", got.body)
				require.Equal(t, "application/json", got.header.Get("Accept"))
				require.Equal(t, coding, got.header.Get("Accept-Encoding"))
			}
		}
	}
	require.Equal(t, before, f.rowCounts(t))
}

// A damaged repetition gets retry corrected, and then the response of the first request.
// A new key would charge twice.
func TestRetry_correctedAfterLostResponse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key, order := newKey(), orderBody()
	first := f.create(t, key, order)
	for name, got := range map[string]response{
		"header twice":   f.create(t, key, order, header("Idempotency-Key", key, key)),
		"no header":      f.create(t, key, order, header("Idempotency-Key")),
		"truncated body": f.create(t, key, order[:len(order)/2]),
		"too large":      f.create(t, key, order+strings.Repeat(" ", 64<<10)),
		"content type":   f.create(t, key, order, header("Content-Type", "text/plain")),
		"API key":        f.create(t, key, order, header("Authorization", "Bearer ok_unknown")),
	} {
		p, outcome := got.problem(t), client.OutcomeUnknown
		if name == "no header" {
			outcome = client.OutcomeNone
		}
		require.Equal(t, []any{client.RetryCorrected, outcome}, []any{p.Retry, p.Outcome}, name)
	}
	again := f.create(t, key, order)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, string(first.body), string(again.body))
	f.requireOnePaidOrder(t)
}
