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

func members() map[string]string {
	return map[string]string{
		"email":          `"ada@example.com"`,
		"currency":       `"usd"`,
		"payment_method": `"pm_card_visa"`,
		"items":          `[{"sku":"A","quantity":1,"unit_amount":100}]`,
	}
}

func body(members map[string]string) []byte {
	var parts []string
	for name, value := range members {
		if value != "" {
			parts = append(parts, fmt.Sprintf("%q:%s", name, value))
		}
	}
	return []byte("{" + strings.Join(parts, ",") + "}")
}

func decode(t *testing.T, request []byte) []string {
	t.Helper()
	canonical, err := idempotency.Canonicalize(request)
	require.NoError(t, err)
	_, err = orders.DecodeOrderRequest(canonical)
	if err == nil {
		return nil
	}
	var invalid *httpjson.InvalidError
	require.ErrorAs(t, err, &invalid)
	for _, f := range invalid.Fields {
		require.Contains(t, err.Error(), f.Detail)
	}
	return errorsOf(invalid)
}

func errorsOf(invalid *httpjson.InvalidError) (errs []string) {
	for _, f := range invalid.Fields {
		errs = append(errs, f.Pointer+" "+f.Code+": "+f.Detail)
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

func TestDecodeOrderRequest_limits(t *testing.T) {
	t.Parallel()
	const (
		required      = httpjson.CodeRequired + ": is required"
		unknown       = httpjson.CodeUnknownMember + ": is not a known member"
		aString       = httpjson.CodeInvalidType + ": must be a string"
		anInteger     = httpjson.CodeInvalidType + ": must be an integer"
		anObject      = httpjson.CodeInvalidType + ": must be an object"
		anArray       = httpjson.CodeInvalidType + ": must be an array"
		noControls    = httpjson.CodeInvalidFormat + ": must not contain control characters"
		anEmail       = httpjson.CodeInvalidFormat + ": must be an ASCII email address such as ada@example.com, with an internationalised domain in punycode (xn--…)"
		aCurrency     = httpjson.CodeInvalidValue + ": must be the lower-case code of a currency that Stripe supports, such as usd"
		aMethod       = httpjson.CodeInvalidFormat + ": must be the id of a payment method, such as pm_card_visa"
		quantity      = httpjson.CodeOutOfRange + ": must be from 1 to 10000"
		amount        = httpjson.CodeOutOfRange + ": must be from -999999999999 to 999999999999"
		total         = httpjson.CodeOutOfRange + ": the total must be from 50 to 99999999 in usd"
		tooShort      = httpjson.CodeTooShort + ": must be "
		tooLong       = httpjson.CodeTooLong + ": must be "
		emailLength   = "3 to 254 characters long"
		threeLong     = "3 characters long"
		methodLength  = "4 to 251 characters long"
		textLength    = "1 to 500 characters long"
		skuLength     = "1 to 64 characters long"
		someItems     = ": must have 1 to 100 items"
		nameLength    = ": the name must be 1 to 40 characters long"
		manyEntries   = httpjson.CodeTooLong + ": must have at most 20 members"
		texts         = httpjson.CodeTooLong + ": the texts of items and metadata must have at most 16384 bytes in UTF-8 together"
		longestMethod = 240
	)
	good := item(`"A"`, "", "1", "100")
	largest := item(quoted("é", 6), quoted("é", 250), "1", "100")
	longer := item(quoted("é", 6), `"`+strings.Repeat("é", 249)+`€"`, "1", "100")
	for name, test := range map[string]struct {
		member string
		value  string
		errs   []string
	}{
		"no email":                {"email", "", []string{"/email " + required}},
		"email too short":         {"email", `"a@"`, []string{"/email " + tooShort + emailLength}},
		"email maximum length":    {"email", `"ad@` + strings.Repeat("d.", 124) + `com"`, nil},
		"email too long":          {"email", `"ada@` + strings.Repeat("d.", 124) + `com"`, []string{"/email " + tooLong + emailLength}},
		"email without a domain":  {"email", `"ada"`, []string{"/email " + anEmail}},
		"email with a line break": {"email", `"ada@example.com\r\nBcc: eve@example.com"`, []string{"/email " + noControls}},

		"currency too short":     {"currency", `"us"`, []string{"/currency " + tooShort + threeLong}},
		"currency in upper case": {"currency", `"USD"`, []string{"/currency " + aCurrency}},
		"currency unknown":       {"currency", `"zzz"`, []string{"/currency " + aCurrency}},
		"email in Unicode":       {"email", `"ada@bücher.example"`, []string{"/email " + anEmail}},
		"email in punycode":      {"email", `"ada@xn--bcher-kva.example"`, nil},

		"payment method maximum length": {"payment_method", `"aaaaaaaaaa_` + strings.Repeat("9", longestMethod) + `"`, nil},
		"payment method too long":       {"payment_method", `"aaaaaaaaaa_` + strings.Repeat("9", longestMethod+1) + `"`, []string{"/payment_method " + tooLong + methodLength}},
		"payment method, a card number": {"payment_method", `"4242424242424242"`, []string{"/payment_method " + aMethod}},

		"no items":     {"items", "", []string{"/items " + required}},
		"items null":   {"items", "null", []string{"/items " + anArray}},
		"items empty":  {"items", "[]", []string{"/items " + httpjson.CodeTooShort + someItems}},
		"101 items":    {"items", items(strings.Split(strings.Repeat(good+";", 100)+good, ";")...), []string{"/items " + httpjson.CodeTooLong + someItems}},
		"item is null": {"items", items(good, "null"), []string{"/items/1 " + anObject}},
		"empty item":   {"items", items("{}"), []string{"/items/0/sku " + required, "/items/0/quantity " + required, "/items/0/unit_amount " + required}},
		"item with unknown members": {"items", items(`{"sku":"A","quantity":1,"unit_amount":1,"Sku":"B","amount":1}`), []string{
			"/items/0/Sku " + unknown, "/items/0/amount " + unknown,
		}},

		"sku maximum length":         {"items", items(item(quoted("é", 64), "", "1", "100")), nil},
		"sku too long":               {"items", items(item(quoted("é", 65), "", "1", "1")), []string{"/items/0/sku " + tooLong + skuLength}},
		"description maximum length": {"items", items(item(`"A"`, quoted("𝄞", 500), "1", "100")), nil},
		"description too long":       {"items", items(item(`"A"`, quoted("𝄞", 501), "1", "1")), []string{"/items/0/description " + tooLong + textLength}},

		"quantity 0":           {"items", items(item(`"A"`, "", "0", "1")), []string{"/items/0/quantity " + quantity}},
		"quantity 10001":       {"items", items(item(`"A"`, "", "10001", "1")), []string{"/items/0/quantity " + quantity}},
		"quantity 2e0":         {"items", items(item(`"A"`, "", "2e0", "100")), nil},
		"quantity 1.5":         {"items", items(item(`"A"`, "", "1.5", "1")), []string{"/items/0/quantity " + anInteger}},
		"unit amount too high": {"items", items(item(`"A"`, "", "1", "1000000000000")), []string{"/items/0/unit_amount " + amount}},
		"unit amount too low":  {"items", items(item(`"A"`, "", "1", "-1000000000000")), []string{"/items/0/unit_amount " + amount}},

		"total maximum":       {"items", items(item(`"A"`, "", "9999", "10000"), item(`"B"`, "", "9999", "1")), nil},
		"total above maximum": {"items", items(item(`"A"`, "", "9999", "10000"), item(`"B"`, "", "10000", "1")), []string{"/items " + total}},
		"largest total":       {"items", items(slices.Repeat([]string{item(`"A"`, "", "10000", "999999999999")}, 100)...), []string{"/items " + total}},
		"total of 0":          {"items", items(item(`"A"`, "", "1", "0")), []string{"/items " + total}},
		"total minimum":       {"items", items(item(`"A"`, "", "1", "50")), nil},
		"total too small":     {"items", items(item(`"A"`, "", "1", "49")), []string{"/items " + total}},
		"negative total":      {"items", items(good, item(`"B"`, "", "1", "-101")), []string{"/items " + total}},
		"gift and discount":   {"items", items(good, item(`"B"`, "", "3", "0"), item(`"C"`, "", "2", "-25")), nil},
		"large lines, exact": {"items", items(append(append(slices.Repeat([]string{item(`"A"`, "", "10000", "999999999999")}, 49),
			slices.Repeat([]string{item(`"B"`, "", "10000", "-999999999999")}, 49)...), good)...), nil},

		"text maximum":  {"items", items(slices.Repeat([]string{largest}, 32)...), nil},
		"text too long": {"items", items(append(slices.Repeat([]string{largest}, 31), longer)...), []string{" " + texts}},

		"metadata null":              {"metadata", "null", []string{"/metadata " + anObject}},
		"21 entries":                 {"metadata", metadataJSON(21), []string{"/metadata " + manyEntries}},
		"entry without a name":       {"metadata", `{"":"x"}`, []string{"/metadata/ " + httpjson.CodeTooShort + nameLength}},
		"longest name":               {"metadata", `{` + quoted("é", 40) + `:"x"}`, nil},
		"name too long":              {"metadata", `{` + quoted("é", 41) + `:"x"}`, []string{"/metadata/" + strings.Repeat("é", 40) + "… " + httpjson.CodeTooLong + nameLength}},
		"longest value":              {"metadata", `{"a":` + quoted("é", 500) + `}`, nil},
		"value too long":             {"metadata", `{"a":` + quoted("é", 501) + `}`, []string{"/metadata/a " + tooLong + "0 to 500 characters long"}},
		"value is a number":          {"metadata", `{"a":1}`, []string{"/metadata/a " + aString}},
		"names that need escaping":   {"metadata", `{"a/b~c":1,"~1":2}`, []string{"/metadata/a~1b~0c " + aString, "/metadata/~01 " + aString}},
		"any characters":             {"metadata", `{"\u0000/~":"\u0000\n"}`, nil},
		"member in another case":     {"Email", `"eve@example.com"`, []string{"/Email " + unknown}},
		"member that needs escaping": {"~/", "null", []string{"/~0~1 " + unknown}},
		"member with a long name":    {strings.Repeat("n", 41), "1", []string{"/" + strings.Repeat("n", 40) + "… " + unknown}},
		"Kelvin sign is not a k": {"items", items(`{"s\u212au":"A","quantity":1,"unit_amount":100}`), []string{
			"/items/0/sku " + required, "/items/0/s\u212au " + unknown,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := members()
			request[test.member] = test.value
			require.Equal(t, test.errs, decode(t, body(request)))
		})
	}
}

// The limits of the total are those of its currency.
func TestDecodeOrderRequest_currencies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ currency, total, err string }{
		{"usd", "99999999", ""},
		{"usd", "100000000", "/items out_of_range: the total must be from 50 to 99999999 in usd"},
		{"idr", "150000000", ""}, // about $90
		{"idr", "999999999999", ""},
		{"jpy", "50", ""},
		{"jpy", "49", "/items out_of_range: the total must be from 50 to 9999999999 in jpy"},
		{"afn", "1", ""}, // without a minimum of its own
		{"afn", "0", "/items out_of_range: the total must be from 1 to 99999999 in afn"},
		{"kwd", "5120", ""},
		{"kwd", "5124", "/items invalid_value: the total must be a multiple of 10 in kwd"},
		{"isk", "500", ""},
		{"isk", "550", "/items invalid_value: the total must be a multiple of 100 in isk"},
	} {
		request := members()
		request["currency"], request["items"] = `"`+test.currency+`"`, items(item(`"A"`, "", "1", test.total))
		require.Equal(t, test.err, strings.Join(decode(t, body(request)), "\n"), "%v", test)
	}
}

func metadataJSON(n int) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = fmt.Sprintf(`"name-%d":"x"`, i)
	}
	return "{" + strings.Join(parts, ",") + "}"
}
