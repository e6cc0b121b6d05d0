package orders_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
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

func decode(t *testing.T, request []byte) (orders.Params, []string) {
	t.Helper()
	canonical, err := idempotency.Canonicalize(request)
	require.NoError(t, err)
	params, err := orders.DecodeParams(canonical)
	if err == nil {
		return params, nil
	}
	var invalid *orders.ValidationError
	require.ErrorAs(t, err, &invalid)
	for _, f := range invalid.Fields {
		require.Contains(t, err.Error(), f.Detail)
	}
	return params, errorsOf(invalid)
}

func errorsOf(invalid *orders.ValidationError) (errs []string) {
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

func TestDecodeParams(t *testing.T) {
	t.Parallel()
	params, errs := decode(t, []byte(`{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa","items":`+itemsJSON+`,"metadata":{"basket":"b-77"}}`))
	require.Empty(t, errs)
	require.Equal(t, orders.Params{PaymentMethod: "pm_card_visa", Order: orders.Order{
		Email:    "ada@example.com",
		Currency: "usd",
		Items: []orders.Item{
			{SKU: "TEA-ASSAM-250", Description: "Assam tea, 250 g", Quantity: 2, UnitAmount: 1250},
			{SKU: "MUG-BLUE", Quantity: 1, UnitAmount: 1800},
		},
		Metadata: map[string]string{"basket": "b-77"},
		Amount:   orderAmount,
	}}, params)

	params, errs = decode(t, body(members()))
	require.Empty(t, errs)
	require.Equal(t, map[string]string{}, params.Metadata, "not null in the response")
}

// Both sides of each limit of openapi.yaml.
func TestDecodeParams_limits(t *testing.T) {
	t.Parallel()
	const (
		required      = orders.CodeRequired + ": is required"
		unknown       = orders.CodeUnknownMember + ": is not a known member"
		aString       = orders.CodeInvalidType + ": must be a string"
		anInteger     = orders.CodeInvalidType + ": must be an integer"
		anObject      = orders.CodeInvalidType + ": must be an object"
		anArray       = orders.CodeInvalidType + ": must be an array"
		noControls    = orders.CodeInvalidFormat + ": must not contain control characters"
		anEmail       = orders.CodeInvalidFormat + ": must be an email address such as ada@example.com"
		aCurrency     = orders.CodeInvalidFormat + ": must be a three-letter currency code in lower case, such as usd"
		aMethod       = orders.CodeInvalidFormat + ": must be the id of a payment method, such as pm_card_visa"
		quantity      = orders.CodeOutOfRange + ": must be from 1 to 10000"
		amount        = orders.CodeOutOfRange + ": must be from 1 to 99999999"
		total         = orders.CodeOutOfRange + ": the total must be at most 99999999"
		tooShort      = orders.CodeTooShort + ": must be "
		tooLong       = orders.CodeTooLong + ": must be "
		emailLength   = "3 to 254 characters long"
		threeLong     = "3 characters long"
		methodLength  = "4 to 251 characters long"
		textLength    = "1 to 500 characters long"
		skuLength     = "1 to 64 characters long"
		someItems     = ": must have 1 to 100 items"
		nameLength    = ": the name must be 1 to 40 characters long"
		manyEntries   = orders.CodeTooLong + ": must have at most 20 members"
		texts         = orders.CodeTooLong + ": the texts of items and metadata must have at most 16384 bytes in UTF-8 together"
		longestMethod = 240
	)
	good := item(`"A"`, "", "1", "100")
	largest := item(quoted("é", 6), quoted("é", 250), "1", "1")
	longer := item(quoted("é", 6), `"`+strings.Repeat("é", 249)+`€"`, "1", "1")
	for name, test := range map[string]struct {
		member string
		value  string
		errs   []string
	}{
		"no email":                {"email", "", []string{"/email " + required}},
		"email null":              {"email", "null", []string{"/email " + aString}},
		"email too short":         {"email", `"a@"`, []string{"/email " + tooShort + emailLength}},
		"email minimum length":    {"email", `"a@b"`, []string{"/email " + anEmail}},
		"email maximum length":    {"email", `"ad@` + strings.Repeat("d.", 124) + `com"`, nil},
		"email too long":          {"email", `"ada@` + strings.Repeat("d.", 124) + `com"`, []string{"/email " + tooLong + emailLength}},
		"email without a domain":  {"email", `"ada"`, []string{"/email " + anEmail}},
		"email with a line break": {"email", `"ada@example.com\r\nBcc: eve@example.com"`, []string{"/email " + noControls}},

		"no currency":            {"currency", "", []string{"/currency " + required}},
		"currency null":          {"currency", "null", []string{"/currency " + aString}},
		"currency too short":     {"currency", `"us"`, []string{"/currency " + tooShort + threeLong}},
		"currency too long":      {"currency", `"usdt"`, []string{"/currency " + tooLong + threeLong}},
		"currency in upper case": {"currency", `"USD"`, []string{"/currency " + aCurrency}},
		"currency not letters":   {"currency", `"u$d"`, []string{"/currency " + aCurrency}},

		"no payment method":               {"payment_method", "", []string{"/payment_method " + required}},
		"payment method null":             {"payment_method", "null", []string{"/payment_method " + aString}},
		"payment method minimum length":   {"payment_method", `"pm_1"`, nil},
		"payment method too short":        {"payment_method", `"pm_"`, []string{"/payment_method " + tooShort + methodLength}},
		"payment method maximum length":   {"payment_method", `"aaaaaaaaaa_` + strings.Repeat("9", longestMethod) + `"`, nil},
		"payment method too long":         {"payment_method", `"aaaaaaaaaa_` + strings.Repeat("9", longestMethod+1) + `"`, []string{"/payment_method " + tooLong + methodLength}},
		"payment method, long after pm":   {"payment_method", `"pm_` + strings.Repeat("9", longestMethod+1) + `"`, []string{"/payment_method " + aMethod}},
		"payment method, long prefix":     {"payment_method", `"aaaaaaaaaaa_9"`, []string{"/payment_method " + aMethod}},
		"payment method, short prefix":    {"payment_method", `"p_card"`, []string{"/payment_method " + aMethod}},
		"payment method without a prefix": {"payment_method", `"visa"`, []string{"/payment_method " + aMethod}},
		"payment method in upper case":    {"payment_method", `"PM_1"`, []string{"/payment_method " + aMethod}},
		"payment method with a slash":     {"payment_method", `"pm_1/2"`, []string{"/payment_method " + aMethod}},
		"payment method, a card number":   {"payment_method", `"4242424242424242"`, []string{"/payment_method " + aMethod}},

		"no items":        {"items", "", []string{"/items " + required}},
		"items null":      {"items", "null", []string{"/items " + anArray}},
		"items an object": {"items", "{}", []string{"/items " + anArray}},
		"items empty":     {"items", "[]", []string{"/items " + orders.CodeTooShort + someItems}},
		"100 items":       {"items", items(strings.Split(strings.Repeat(good+";", 99)+good, ";")...), nil},
		"101 items":       {"items", items(strings.Split(strings.Repeat(good+";", 100)+good, ";")...), []string{"/items " + orders.CodeTooLong + someItems}},
		"item is null":    {"items", items(good, "null"), []string{"/items/1 " + anObject}},
		"empty item":      {"items", items("{}"), []string{"/items/0/sku " + required, "/items/0/quantity " + required, "/items/0/unit_amount " + required}},
		"item with unknown members": {"items", items(`{"sku":"A","quantity":1,"unit_amount":1,"Sku":"B","amount":1}`), []string{
			"/items/0/Sku " + unknown, "/items/0/amount " + unknown,
		}},

		"sku empty":                  {"items", items(item(`""`, "", "1", "1")), []string{"/items/0/sku " + tooShort + skuLength}},
		"sku null":                   {"items", items(item("null", "", "1", "1")), []string{"/items/0/sku " + aString}},
		"sku maximum length":         {"items", items(item(quoted("é", 64), "", "1", "1")), nil},
		"sku too long":               {"items", items(item(quoted("é", 65), "", "1", "1")), []string{"/items/0/sku " + tooLong + skuLength}},
		"sku with a tab":             {"items", items(item(`"A\tB"`, "", "1", "1")), []string{"/items/0/sku " + noControls}},
		"sku with a C1 control":      {"items", items(item(`"A\u0085B"`, "", "1", "1")), []string{"/items/0/sku " + noControls}},
		"description empty":          {"items", items(item(`"A"`, `""`, "1", "1")), []string{"/items/0/description " + tooShort + textLength}},
		"description null":           {"items", items(item(`"A"`, "null", "1", "1")), []string{"/items/0/description " + aString}},
		"description maximum length": {"items", items(item(`"A"`, quoted("𝄞", 500), "1", "1")), nil},
		"description too long":       {"items", items(item(`"A"`, quoted("𝄞", 501), "1", "1")), []string{"/items/0/description " + tooLong + textLength}},
		"description, line break":    {"items", items(item(`"A"`, `"a\nb"`, "1", "1")), []string{"/items/0/description " + noControls}},

		"quantity 0":           {"items", items(item(`"A"`, "", "0", "1")), []string{"/items/0/quantity " + quantity}},
		"quantity 10000":       {"items", items(item(`"A"`, "", "10000", "1")), nil},
		"quantity 10001":       {"items", items(item(`"A"`, "", "10001", "1")), []string{"/items/0/quantity " + quantity}},
		"quantity 2e0":         {"items", items(item(`"A"`, "", "2e0", "1")), nil},
		"quantity 1.5":         {"items", items(item(`"A"`, "", "1.5", "1")), []string{"/items/0/quantity " + anInteger}},
		"quantity a string":    {"items", items(item(`"A"`, "", `"1"`, "1")), []string{"/items/0/quantity " + anInteger}},
		"quantity null":        {"items", items(item(`"A"`, "", "null", "1")), []string{"/items/0/quantity " + anInteger}},
		"unit amount 0":        {"items", items(item(`"A"`, "", "1", "0")), []string{"/items/0/unit_amount " + amount}},
		"unit amount maximum":  {"items", items(item(`"A"`, "", "1", "99999999")), nil},
		"unit amount too high": {"items", items(item(`"A"`, "", "1", "100000000")), []string{"/items/0/unit_amount " + amount}},

		"total maximum":       {"items", items(item(`"A"`, "", "9999", "10000"), item(`"B"`, "", "9999", "1")), nil},
		"total above maximum": {"items", items(item(`"A"`, "", "9999", "10000"), item(`"B"`, "", "10000", "1")), []string{"/items " + total}},
		"total of one item":   {"items", items(item(`"A"`, "", "10000", "10000")), []string{"/items " + total}},
		"total beyond 64 bit": {"items", items(strings.Split(strings.Repeat(item(`"A"`, "", "10000", "99999999")+";", 99)+good, ";")...), []string{"/items " + total}},

		"text maximum":  {"items", items(slices.Repeat([]string{largest}, 32)...), nil},
		"text too long": {"items", items(append(slices.Repeat([]string{largest}, 31), longer)...), []string{" " + texts}},

		"metadata null":              {"metadata", "null", []string{"/metadata " + anObject}},
		"metadata an array":          {"metadata", "[]", []string{"/metadata " + anObject}},
		"metadata empty":             {"metadata", "{}", nil},
		"20 entries":                 {"metadata", metadataJSON(20), nil},
		"21 entries":                 {"metadata", metadataJSON(21), []string{"/metadata " + manyEntries}},
		"entry without a name":       {"metadata", `{"":"x"}`, []string{"/metadata/ " + orders.CodeTooShort + nameLength}},
		"longest name":               {"metadata", `{` + quoted("é", 40) + `:"x"}`, nil},
		"name too long":              {"metadata", `{` + quoted("é", 41) + `:"x"}`, []string{"/metadata/" + strings.Repeat("é", 40) + "… " + orders.CodeTooLong + nameLength}},
		"empty value":                {"metadata", `{"a":""}`, nil},
		"longest value":              {"metadata", `{"a":` + quoted("é", 500) + `}`, nil},
		"value too long":             {"metadata", `{"a":` + quoted("é", 501) + `}`, []string{"/metadata/a " + tooLong + "0 to 500 characters long"}},
		"value is a number":          {"metadata", `{"a":1}`, []string{"/metadata/a " + aString}},
		"value is null":              {"metadata", `{"a":null}`, []string{"/metadata/a " + aString}},
		"names that need escaping":   {"metadata", `{"a/b~c":1,"~1":2}`, []string{"/metadata/a~1b~0c " + aString, "/metadata/~01 " + aString}},
		"any characters":             {"metadata", `{"\u0000/~":"\u0000\n"}`, nil},
		"member in another case":     {"Email", `"eve@example.com"`, []string{"/Email " + unknown}},
		"member of the response":     {"amount", "1", []string{"/amount " + unknown}},
		"member without a name":      {"", "1", []string{"/ " + unknown}},
		"member that needs escaping": {"~/", "null", []string{"/~0~1 " + unknown}},
		"member with a long name":    {strings.Repeat("n", 41), "1", []string{"/" + strings.Repeat("n", 40) + "… " + unknown}},
		"member cut at an escape":    {strings.Repeat("n", 39) + "/x", "1", []string{"/" + strings.Repeat("n", 39) + "~1… " + unknown}},
		"long s is not an s":         {"item\u017f", "[]", []string{"/item\u017f " + unknown}},
		"Kelvin sign is not a k": {"items", items(`{"s\u212au":"A","quantity":1,"unit_amount":1}`), []string{
			"/items/0/sku " + required, "/items/0/s\u212au " + unknown,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := members()
			request[test.member] = test.value
			_, errs := decode(t, body(request))
			require.Equal(t, test.errs, errs)
		})
	}
}

func metadataJSON(n int) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = fmt.Sprintf(`"name-%d":"x"`, i)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func TestDecodeParams_allErrors(t *testing.T) {
	t.Parallel()
	_, errs := decode(t, []byte(`{"EMAIL":"a@b","currency":"USD","items":[{"sku":1,"quantity":0.5}],"metadata":{"a":1},"status":"paid"}`))
	require.Equal(t, []string{
		"/email required: is required",
		"/payment_method required: is required",
		"/items/0/sku invalid_type: must be a string",
		"/items/0/quantity invalid_type: must be an integer",
		"/items/0/unit_amount required: is required",
		"/metadata/a invalid_type: must be a string",
		"/EMAIL unknown_member: is not a known member",
		"/status unknown_member: is not a known member",
		"/currency invalid_format: must be a three-letter currency code in lower case, such as usd",
	}, errs)

	_, errs = decode(t, []byte(`{}`))
	require.Equal(t, []string{"/email required: is required", "/currency required: is required", "/payment_method required: is required", "/items required: is required"}, errs)
}

func TestDecodeParams_tooManyErrors(t *testing.T) {
	t.Parallel()
	request := members()
	for i := range 900 {
		request[fmt.Sprintf("x%d", i)] = "0"
	}
	_, errs := decode(t, body(request))
	require.Len(t, errs, 100)
}

func TestDecodeParams_notAnObject(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "[]", "1", `"x"`, "{", "nul"} {
		_, err := orders.DecodeParams([]byte(text))
		var invalid *orders.ValidationError
		require.Error(t, err)
		require.NotErrorAs(t, err, &invalid, "a mistake of the caller: the body is canonical")
	}
}
