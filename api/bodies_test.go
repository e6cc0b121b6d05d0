package api_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// Package idempotency tests all kinds of malformed JSON.
func TestCreateOrder_malformedBody(t *testing.T) {
	t.Parallel()
	whole := orderBody()
	f := newFixture(t)
	key := newKey()
	before := f.rowCounts(t)
	for name, text := range map[string]string{
		"empty":               "",
		"array":               "[" + whole + "]",
		"half an object":      whole[:len(whole)/2],
		"duplicate member":    `{"currency":"eur",` + whole[1:],
		"invalid UTF-8":       "{\"x\":\"\xff\"," + whole[1:],
		"too many values":     `{"x":[1` + strings.Repeat(",1", 9_999) + `],` + whole[1:],
		"too deep":            strings.Repeat(`{"a":`, 10_000),
		"lost digits":         strings.Replace(whole, `"quantity":1,`, `"quantity":1.0000000000000001,`, 1),
		"unterminated string": `{"` + strings.Repeat("a", 60<<10),
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

// Package orders tests all rules.
func TestCreateOrder_invalid(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey()
	before := f.rowCounts(t)
	item := map[string]any{"sku": "tea", "quantity": 1, "unit_amount": 100, "amount": 1}
	for pointer, change := range map[string]func(map[string]any){
		"/email":           func(members map[string]any) { delete(members, "email") },
		"/currency":        withMember("currency", "USD"),
		"/payment_method":  withMember("payment_method", "4242424242424242"),
		"/items":           withMember("items", []any{}),
		"/items/0/amount":  withMember("items", []any{item}),
		"/metadata/a~1b~0": withMember("metadata", map[string]any{"a/b~": 1}),
		"/status":          withMember("status", "paid"),
		"/account_id":      withMember("account_id", f.account.String()),
	} {
		got := f.create(t, key, orderBody(change))
		require.Equal(t, http.StatusUnprocessableEntity, got.status, "%s: %s", pointer, got.body)
		p := got.problem(t)
		require.Equal(t, "validation-failed", p.slug(), pointer)
		require.Equal(t, []string{pointer}, p.pointers())
		require.NotEmpty(t, p.Errors[0].Detail, pointer)
	}
	require.Equal(t, before, f.rowCounts(t))
	require.Equal(t, http.StatusCreated, f.create(t, key, orderBody()).status, "the key was not used")
}

// The contract lists the codes of errors, and the API sends each of them.
func TestValidationFailed_codes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, err := loadContract()
	require.NoError(t, err)
	code := c.doc.Components.Schemas["Errors"].Value.Items.Value.Properties["code"].Value
	order := f.createPaid(t)
	sent := map[any]response{
		"required":            f.create(t, newKey(), `{}`),
		"unknown_member":      f.create(t, newKey(), orderBody(withMember("status", "paid"))),
		"invalid_type":        f.create(t, newKey(), orderBody(withMember("email", 1))),
		"invalid_format":      f.create(t, newKey(), orderBody(withMember("currency", "USD"))),
		"invalid_value":       f.createRefund(t, order, newKey(), `{"reason":"regret"}`),
		"too_short":           f.create(t, newKey(), orderBody(withMember("items", []any{}))),
		"too_long":            f.create(t, newKey(), orderBody(withMember("currency", "usdt"))),
		"out_of_range":        f.createRefund(t, order, newKey(), `{"amount":0}`),
		"unknown_parameter":   f.get(t, "/v1/orders?page=2"),
		"duplicate_parameter": f.get(t, "/v1/orders?limit=1&limit=1"),
		"not_found":           f.get(t, "/v1/orders?after="+uuid.NewString()),
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(sent)), code.Enum)
	for want, got := range sent {
		p := got.problem(t)
		require.Equal(t, "validation-failed", p.slug(), want)
		require.Equal(t, want, p.Errors[0].Code)
		require.NotEmpty(t, p.Errors[0].Detail)
		require.Contains(t, code.Description, "`"+p.Errors[0].Code+"`")
	}
	missing := f.get(t, order+"/refunds?after="+uuid.NewString()).problem(t)
	require.Equal(t, "not_found", missing.Errors[0].Code)
}

func TestCreateOrder_bodySize(t *testing.T) {
	t.Parallel()
	const limit = 65_536
	f := newFixture(t)
	pad := func(n int) string { return orderBody() + strings.Repeat(" ", n-len(orderBody())) }
	for name, test := range map[string]struct {
		body   string
		edit   requestEdit
		status int
	}{
		"limit":                     {pad(limit), func(*http.Request) {}, http.StatusCreated},
		"above the limit":           {pad(limit + 1), func(*http.Request) {}, http.StatusRequestEntityTooLarge},
		"limit, chunked":            {pad(limit), chunked, http.StatusCreated},
		"above the limit, chunked":  {pad(limit + 1), chunked, http.StatusRequestEntityTooLarge},
		"a million members":         {`{` + strings.Repeat(`"a":1,`, 1_000_000) + `"b":1}`, func(*http.Request) {}, http.StatusRequestEntityTooLarge},
		"above the limit, not JSON": {strings.Repeat("x", limit+1), chunked, http.StatusRequestEntityTooLarge},
	} {
		before := f.rowCounts(t)
		key := newKey()
		got := f.create(t, key, test.body, test.edit)
		require.Equal(t, test.status, got.status, "%s: %s", name, got.body)
		require.Equal(t, key, got.header.Get("Idempotency-Key"), name)
		if test.status != http.StatusCreated {
			require.Equal(t, "too-large", got.problem(t).slug(), name)
			require.Equal(t, before, f.rowCounts(t), name)
		}
	}
}

// [TestCheckMediaType] has all forms.
func TestCreateOrder_mediaType(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.Equal(t, http.StatusCreated, f.create(t, newKey(), orderBody(), header("Content-Type", "Application/JSON; charset=UTF-8")).status)
	before := f.rowCounts(t)
	for coding, e := range map[string]requestEdit{"": header("Content-Type", "text/plain"), "identity": header("Content-Encoding", "gzip")} {
		for _, got := range []response{
			f.create(t, newKey(), orderBody(), e),
			f.createRefund(t, "/v1/orders/"+uuid.NewString(), newKey(), "{}", e),
			f.deliver(t, "{}", "", e),
		} {
			require.Equal(t, "unsupported-media-type", got.problem(t).slug(), "%s", got.body)
			require.Equal(t, "application/json", got.header.Get("Accept"))
			require.Equal(t, coding, got.header.Get("Accept-Encoding"))
		}
	}
	require.NotEmpty(t, f.create(t, newKey(), orderBody(), header("Content-Type")).header.Get("Idempotency-Key"))
	require.Equal(t, before, f.rowCounts(t))
}

// A text of the length in the contract is accepted and returned unchanged, a longer one
// is rejected.
func TestCreateOrder_textLength(t *testing.T) {
	t.Parallel()
	c, err := loadContract()
	require.NoError(t, err)
	type object = map[string]any
	type text struct {
		at   string // a JSON pointer
		name string
		max  *uint64
		send func(value string) func(object) // sets it in a request
		read func(order object) any          // reads it from the response; nil if that has none
	}
	var texts []text
	request, created := c.doc.Components.Schemas["OrderRequest"].Value, c.doc.Components.Schemas["Order"].Value
	for name, schema := range request.Properties {
		member := text{"/" + name, name, schema.Value.MaxLength, func(value string) func(object) { return withMember(name, value) }, nil}
		if created.Properties[name] != nil {
			member.read = func(order object) any { return order[name] }
		}
		texts = append(texts, member)
	}
	for name, schema := range request.Properties["items"].Value.Items.Value.Properties {
		texts = append(texts, text{"/items/0/" + name, name, schema.Value.MaxLength, func(value string) func(object) {
			return withMember("items", []any{object{"sku": "tea", "quantity": 1, "unit_amount": 100, name: value}})
		}, func(order object) any { return order["items"].([]any)[0].(object)[name] }})
	}

	// Texts that must have a certain form. The payment method does not exist.
	long := map[string]func(n int) string{
		"email":          func(n int) string { return "a@" + strings.Repeat(strings.Repeat("x", 60)+".", 5)[:n-3] + "x" },
		"currency":       func(n int) string { return "usdx"[:n] },
		"payment_method": func(n int) string { return "pppppppppp_" + strings.Repeat("x", n-11) },
	}
	f := newFixture(t)
	tried := 0
	for _, member := range texts {
		if member.max == nil {
			continue
		}
		tried++
		value, limit := long[member.name], int(*member.max)
		if value == nil {
			value = func(n int) string { return strings.Repeat("x", n) }
		}
		got := f.create(t, newKey(), orderBody(member.send(value(limit))))
		if member.read == nil {
			require.NotEqual(t, "validation-failed", got.problem(t).slug(), member.at)
		} else {
			require.Equal(t, http.StatusCreated, got.status, "%s: %s", member.at, got.body)
			for _, r := range []response{got, f.get(t, got.header.Get("Location"))} {
				var order object
				require.NoError(t, json.Unmarshal(r.body, &order))
				require.Equal(t, value(limit), member.read(order), "%s: %s", member.at, r.body)
			}
		}
		got = f.create(t, newKey(), orderBody(member.send(value(limit+1))))
		require.Equal(t, http.StatusUnprocessableEntity, got.status, "%s: %s", member.at, got.body)
		require.Equal(t, []string{member.at}, got.problem(t).pointers())
	}
	require.GreaterOrEqual(t, tried, 4)
}
