package orders_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders"
)

// decode returns the pointers and codes of the errors of a request that has these members instead of valid ones.
func decode(t *testing.T, changed map[string]string) (errs []string) {
	t.Helper()
	members := map[string]string{
		"email":          `"ada@example.com"`,
		"currency":       `"usd"`,
		"payment_method": `"pm_card_visa"`,
		"items":          `[{"sku":"A","quantity":1,"unit_amount":100}]`,
	}
	for name, value := range changed {
		members[name] = value
	}
	var parts []string
	for name, value := range members {
		if value != "" {
			parts = append(parts, fmt.Sprintf("%q:%s", name, value))
		}
	}
	canonical, err := idempotency.Canonicalize([]byte("{" + strings.Join(parts, ",") + "}"))
	require.NoError(t, err)
	if _, err = orders.DecodeOrderRequest(canonical); err == nil {
		return nil
	}
	var invalid *httpjson.InvalidError
	require.ErrorAs(t, err, &invalid)
	for _, f := range invalid.Fields {
		require.Contains(t, err.Error(), f.Detail)
		errs = append(errs, f.Pointer+" "+f.Code)
	}
	return errs
}

func quoted(s string, n int) string { return `"` + strings.Repeat(s, n) + `"` }

func item(sku, description, quantity, unitAmount string) string {
	parts := []string{`"sku":` + sku, `"quantity":` + quantity, `"unit_amount":` + unitAmount}
	if description != "" {
		parts = append(parts, `"description":`+description)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func items(list ...string) string { return "[" + strings.Join(list, ",") + "]" }

// The limits of the contract. [ExampleDecodeOrderRequest] has the texts of the errors, and package receipts the
// forms of an address.
func TestDecodeOrderRequest_limits(t *testing.T) {
	t.Parallel()
	good := item(`"A"`, "", "1", "100")
	largest := item(quoted("é", 6), quoted("é", 250), "1", "100")
	longer := item(quoted("é", 6), `"`+strings.Repeat("é", 249)+`€"`, "1", "100")
	for name, test := range map[string]struct {
		member string
		value  string
		errs   []string
	}{
		"no email":               {"email", "", []string{"/email required"}},
		"email too short":        {"email", `"a@"`, []string{"/email too_short"}},
		"email maximum length":   {"email", `"ad@` + strings.Repeat("d.", 124) + `com"`, nil},
		"email too long":         {"email", `"ada@` + strings.Repeat("d.", 124) + `com"`, []string{"/email too_long"}},
		"email without a domain": {"email", `"ada"`, []string{"/email invalid_format"}},
		"email in punycode":      {"email", `"ada@xn--bcher-kva.example"`, nil},

		"currency too short":     {"currency", `"us"`, []string{"/currency too_short"}},
		"currency in upper case": {"currency", `"USD"`, []string{"/currency invalid_value"}},

		"payment method maximum length": {"payment_method", `"aaaaaaaaaa_` + strings.Repeat("9", 240) + `"`, nil},
		"payment method too long":       {"payment_method", `"aaaaaaaaaa_` + strings.Repeat("9", 241) + `"`, []string{"/payment_method too_long"}},

		"no items":                 {"items", "", []string{"/items required"}},
		"items null":               {"items", "null", []string{"/items invalid_type"}},
		"items empty":              {"items", "[]", []string{"/items too_short"}},
		"101 items":                {"items", items(slices.Repeat([]string{good}, 101)...), []string{"/items too_long"}},
		"item is null":             {"items", items(good, "null"), []string{"/items/1 invalid_type"}},
		"empty item":               {"items", items("{}"), []string{"/items/0/sku required", "/items/0/quantity required", "/items/0/unit_amount required"}},
		"item with another member": {"items", items(`{"sku":"A","quantity":1,"unit_amount":1,"Sku":"B"}`), []string{"/items/0/Sku unknown_member"}},
		"a Kelvin sign is not a k": {"items", items(`{"s\u212au":"A","quantity":1,"unit_amount":100}`), []string{"/items/0/sku required", "/items/0/s\u212au unknown_member"}},
		"sku maximum length":       {"items", items(item(quoted("é", 64), "", "1", "100")), nil},
		"sku too long":             {"items", items(item(quoted("é", 65), "", "1", "1")), []string{"/items/0/sku too_long"}},
		"longest description":      {"items", items(item(`"A"`, quoted("𝄞", 500), "1", "100")), nil},
		"description too long":     {"items", items(item(`"A"`, quoted("𝄞", 501), "1", "1")), []string{"/items/0/description too_long"}},
		"quantity 10001":           {"items", items(item(`"A"`, "", "10001", "1")), []string{"/items/0/quantity out_of_range"}},
		"quantity 2e0":             {"items", items(item(`"A"`, "", "2e0", "100")), nil},
		"quantity 1.5":             {"items", items(item(`"A"`, "", "1.5", "1")), []string{"/items/0/quantity invalid_type"}},
		"unit amount too high":     {"items", items(item(`"A"`, "", "1", "1000000000000")), []string{"/items/0/unit_amount out_of_range"}},
		"unit amount too low":      {"items", items(item(`"A"`, "", "1", "-1000000000000")), []string{"/items/0/unit_amount out_of_range"}},
		"total maximum":            {"items", items(item(`"A"`, "", "9999", "10000"), item(`"B"`, "", "9999", "1")), nil},
		"total above maximum":      {"items", items(item(`"A"`, "", "9999", "10000"), item(`"B"`, "", "10000", "1")), []string{"/items out_of_range"}},
		"largest total":            {"items", items(slices.Repeat([]string{item(`"A"`, "", "10000", "999999999999")}, 100)...), []string{"/items out_of_range"}},
		"total minimum":            {"items", items(item(`"A"`, "", "1", "50")), nil},
		"total too small":          {"items", items(item(`"A"`, "", "1", "49")), []string{"/items out_of_range"}},
		"negative total":           {"items", items(good, item(`"B"`, "", "1", "-101")), []string{"/items out_of_range"}},
		"gift and discount":        {"items", items(good, item(`"B"`, "", "3", "0"), item(`"C"`, "", "2", "-25")), nil},
		"text maximum":             {"items", items(slices.Repeat([]string{largest}, 32)...), nil},
		"text too long":            {"items", items(append(slices.Repeat([]string{largest}, 31), longer)...), []string{" too_long"}},
		"large lines cancel out": {"items", items(append(append(slices.Repeat([]string{item(`"A"`, "", "10000", "999999999999")}, 49),
			slices.Repeat([]string{item(`"B"`, "", "10000", "-999999999999")}, 49)...), good)...), nil},

		"metadata null":              {"metadata", "null", []string{"/metadata invalid_type"}},
		"21 entries":                 {"metadata", metadataJSON(21), []string{"/metadata too_long"}},
		"entry without a name":       {"metadata", `{"":"x"}`, []string{"/metadata/ too_short"}},
		"longest name":               {"metadata", `{` + quoted("é", 40) + `:"x"}`, nil},
		"name too long":              {"metadata", `{` + quoted("é", 41) + `:"x"}`, []string{"/metadata/" + strings.Repeat("é", 40) + "… too_long"}},
		"longest value":              {"metadata", `{"a":` + quoted("é", 500) + `}`, nil},
		"value too long":             {"metadata", `{"a":` + quoted("é", 501) + `}`, []string{"/metadata/a too_long"}},
		"names that need escaping":   {"metadata", `{"a/b~c":1,"~1":2}`, []string{"/metadata/a~1b~0c invalid_type", "/metadata/~01 invalid_type"}},
		"any characters":             {"metadata", `{"\u0000/~":"\u0000\n"}`, nil},
		"member that needs escaping": {"~/", "null", []string{"/~0~1 unknown_member"}},
		"member with a long name":    {strings.Repeat("n", 41), "1", []string{"/" + strings.Repeat("n", 40) + "… unknown_member"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.errs, decode(t, map[string]string{test.member: test.value}))
		})
	}
}

// The limits of the total are those of its currency.
func TestDecodeOrderRequest_currencies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		currency, total string
		errs            []string
	}{
		{"jpy", "50", nil},
		{"jpy", "49", []string{"/items out_of_range"}},
		{"kwd", "5120", nil},
		{"kwd", "5124", []string{"/items invalid_value"}}, // no multiple of 10
	} {
		got := decode(t, map[string]string{"currency": `"` + test.currency + `"`, "items": items(item(`"A"`, "", "1", test.total))})
		require.Equal(t, test.errs, got, "%v", test)
	}
}

func metadataJSON(n int) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = fmt.Sprintf(`"name-%d":"x"`, i)
	}
	return "{" + strings.Join(parts, ",") + "}"
}
