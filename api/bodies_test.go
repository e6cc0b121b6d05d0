package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/orders"
)

func TestMalformedBodiesDoNothing(t *testing.T) {
	t.Parallel()
	whole := orderBody()
	// insert puts text behind the opening brace of an order.
	insert := func(text string) string { return "{" + text + whole[1:] }
	tests := map[string]string{
		"empty":                             "",
		"blanks":                            " \r\n\t ",
		"no JSON":                           "order=1",
		"an array":                          "[" + whole + "]",
		"a string":                          `"order"`,
		"null":                              "null",
		"a number":                          "1",
		"half an object":                    whole[:len(whole)/2],
		"two objects":                       whole + whole,
		"something behind the object":       whole + "x",
		"a byte order mark":                 "\ufeff" + whole,
		"UTF-16":                            "{\x00\"\x00a\x00\"\x00:\x001\x00}\x00",
		"a comment":                         insert("/* */"),
		"a comma too many":                  strings.TrimSuffix(whole, "}") + ",}",
		"single quotes":                     insert(`'note':1,`),
		"a member without quotes":           insert(`note:1,`),
		"a duplicate member":                insert(`"currency":"eur",`),
		"an equal duplicate member":         insert(`"currency":"usd",`),
		"a duplicate member in disguise":    insert(`"c\u0075rrency":"eur",`),
		"a duplicate member, nested":        insert(`"x":{"a":1,"a":1},`),
		"a duplicate member in an array":    insert(`"x":[{"a":1,"a":2}],`),
		"a control character in a string":   insert("\"x\":\"a\nb\","),
		"NUL in a string":                   insert("\"x\":\"a\x00b\","),
		"NUL behind the object":             whole + "\x00",
		"invalid UTF-8":                     insert("\"x\":\"\xff\","),
		"invalid UTF-8 in a name":           insert("\"\xc3\x28\":1,"),
		"an overlong encoding":              insert("\"x\":\"\xc0\xaf\","),
		"a surrogate in UTF-8":              insert("\"x\":\"\xed\xa0\x80\","),
		"a lone high surrogate":             insert(`"x":"\ud800",`),
		"a lone low surrogate":              insert(`"x":"\udc00",`),
		"an unknown escape":                 insert(`"x":"\x41",`),
		"half an escape":                    insert(`"x":"\u00",`),
		"a number beyond floating point":    insert(`"x":1e400,`),
		"a number below floating point":     insert(`"x":-1e400,`),
		"an integer beyond 2^53":            insert(`"x":9007199254740993,`),
		"a subnormal number":                insert(`"x":5e-324,`),
		"more digits than a double keeps":   insert(`"x":1.0000000000000000001,`),
		"10,000 numbers":                    insert(`"x":[1` + strings.Repeat(",1", 9_999) + `],`),
		"a long integer":                    insert(`"x":1` + strings.Repeat("0", 5000) + `,`),
		"a leading zero":                    insert(`"x":01,`),
		"a leading plus":                    insert(`"x":+1,`),
		"hexadecimal":                       insert(`"x":0x1,`),
		"NaN":                               insert(`"x":NaN,`),
		"Infinity":                          insert(`"x":-Infinity,`),
		"true in capitals":                  insert(`"x":True,`),
		"33 levels":                         insert(`"x":` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + `,`),
		"10,000 levels":                     insert(`"x":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `,`),
		"10,000 levels of objects":          strings.Repeat(`{"a":`, 10_000),
		"brackets that close what is not":   `{"a":]}`,
		"a quote of 60 kilobytes, unclosed": `{"` + strings.Repeat("a", 60<<10),
	}
	f := newFixture(t)
	key := newKey()
	before := f.rowCounts(t)
	for name, text := range tests {
		got := f.create(t, key, text, header("Content-Type", "application/json"))
		require.Equal(t, http.StatusBadRequest, got.status, "%s: %s", name, got.body)
		require.Equal(t, "malformed-request", got.problem(t).slug(), name)
		require.Equal(t, key, got.header.Get("Idempotency-Key"), name)
		require.Less(t, len(got.body), 1000, name)
	}
	require.Equal(t, before, f.rowCounts(t))
	require.Equal(t, http.StatusCreated, f.create(t, key, whole).status, "the key was not used")
}

func TestInvalidOrdersDoNothing(t *testing.T) {
	t.Parallel()
	item := func(change ...func(map[string]any)) func(map[string]any) {
		members := map[string]any{"sku": "tea", "quantity": 1, "unit_amount": 100}
		for _, c := range change {
			c(members)
		}
		return withMember("items", []any{members})
	}
	without := func(name string) func(map[string]any) {
		return func(members map[string]any) { delete(members, name) }
	}
	items := func(n int) []any {
		return slices.Repeat([]any{map[string]any{"sku": "tea", "quantity": 1, "unit_amount": 1}}, n)
	}
	notes := map[string]any{}
	for i := range 21 {
		notes[fmt.Sprint(i)] = "x"
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	type change = func(map[string]any)
	tests := map[string]struct {
		change  change
		pointer string
	}{
		"no email":                          {without("email"), "/email"},
		"email null":                        {withMember("email", nil), "/email"},
		"email a number":                    {withMember("email", 1), "/email"},
		"email empty":                       {withMember("email", ""), "/email"},
		"email without an at":               {withMember("email", "ada.example.com"), "/email"},
		"email with a name":                 {withMember("email", "Ada <ada@example.com>"), "/email"},
		"two emails":                        {withMember("email", "ada@example.com, bob@example.com"), "/email"},
		"email with a line of its own":      {withMember("email", "ada@example.com\r\nBcc: all@example.com"), "/email"},
		"email with NUL":                    {withMember("email", "ada\x00@example.com"), "/email"},
		"email too long":                    {withMember("email", long(250)+"@example.com"), "/email"},
		"no currency":                       {without("currency"), "/currency"},
		"currency in capitals":              {withMember("currency", "USD"), "/currency"},
		"currency too long":                 {withMember("currency", "usdollar"), "/currency"},
		"currency with a line break":        {withMember("currency", "us\n"), "/currency"},
		"currency in other letters":         {withMember("currency", "üsd"), "/currency"},
		"no payment method":                 {without("payment_method"), "/payment_method"},
		"a card number":                     {withMember("payment_method", "4242424242424242"), "/payment_method"},
		"a payment method with a path":      {withMember("payment_method", "pm_card/../x"), "/payment_method"},
		"a payment method too long":         {withMember("payment_method", "pm_"+long(250)), "/payment_method"},
		"no items":                          {without("items"), "/items"},
		"items null":                        {withMember("items", nil), "/items"},
		"items an object":                   {withMember("items", map[string]any{}), "/items"},
		"items empty":                       {withMember("items", []any{}), "/items"},
		"101 items":                         {withMember("items", items(101)), "/items"},
		"an item that is null":              {withMember("items", []any{nil}), "/items/0"},
		"an item that is an array":          {withMember("items", []any{[]any{}}), "/items/0"},
		"sku missing":                       {item(without("sku")), "/items/0/sku"},
		"sku empty":                         {item(withMember("sku", "")), "/items/0/sku"},
		"sku too long":                      {item(withMember("sku", long(65))), "/items/0/sku"},
		"sku with NUL":                      {item(withMember("sku", "a\x00b")), "/items/0/sku"},
		"sku with a line break":             {item(withMember("sku", "a\r\nb")), "/items/0/sku"},
		"description null":                  {item(withMember("description", nil)), "/items/0/description"},
		"description empty":                 {item(withMember("description", "")), "/items/0/description"},
		"description too long":              {item(withMember("description", long(501))), "/items/0/description"},
		"quantity missing":                  {item(without("quantity")), "/items/0/quantity"},
		"quantity 0":                        {item(withMember("quantity", 0)), "/items/0/quantity"},
		"quantity negative":                 {item(withMember("quantity", -1)), "/items/0/quantity"},
		"quantity a fraction":               {item(withMember("quantity", 1.5)), "/items/0/quantity"},
		"quantity a string":                 {item(withMember("quantity", "1")), "/items/0/quantity"},
		"quantity true":                     {item(withMember("quantity", true)), "/items/0/quantity"},
		"quantity too large":                {item(withMember("quantity", 10_001)), "/items/0/quantity"},
		"unit_amount 0":                     {item(withMember("unit_amount", 0)), "/items/0/unit_amount"},
		"unit_amount too large":             {item(withMember("unit_amount", 100_000_000)), "/items/0/unit_amount"},
		"a total too large":                 {item(withMember("unit_amount", 99_999_999), withMember("quantity", 2)), "/items"},
		"a total that would overflow":       {item(withMember("unit_amount", 99_999_999), withMember("quantity", 10_000)), "/items"},
		"metadata an array":                 {withMember("metadata", []any{}), "/metadata"},
		"metadata null":                     {withMember("metadata", nil), "/metadata"},
		"metadata of 21":                    {withMember("metadata", notes), "/metadata"},
		"metadata with a number":            {withMember("metadata", map[string]any{"a": 1}), "/metadata/a"},
		"metadata with an object":           {withMember("metadata", map[string]any{"a": map[string]any{}}), "/metadata/a"},
		"metadata with an empty name":       {withMember("metadata", map[string]any{"": "x"}), "/metadata/"},
		"metadata with a long name":         {withMember("metadata", map[string]any{long(41): "x"}), "/metadata/" + long(40) + "…"},
		"metadata with a long value":        {withMember("metadata", map[string]any{"a/b~c": long(501)}), "/metadata/a~1b~0c"},
		"a known member in capitals":        {withMember("Email", email), "/Email"},
		"a status of its own":               {withMember("status", "paid"), "/status"},
		"an amount of its own":              {withMember("amount", 1), "/amount"},
		"a time of payment of its own":      {withMember("paid_at", "2026-11-20T09:30:13Z"), "/paid_at"},
		"another account":                   {withMember("account_id", "00000000-0000-0000-0000-000000000001"), "/account_id"},
		"a payment of its own":              {withMember("payment_intent_id", "pi_1"), "/payment_intent_id"},
		"__proto__":                         {withMember("__proto__", map[string]any{"status": "paid"}), "/__proto__"},
		"an unknown member with a slash":    {withMember("a/b", 1), "/a~1b"},
		"an unknown member of an item":      {item(withMember("price", 1)), "/items/0/price"},
		"an item with an amount of its own": {item(withMember("amount", 1)), "/items/0/amount"},
	}
	f := newFixture(t)
	key := newKey()
	before := f.rowCounts(t)
	for name, test := range tests {
		got := f.create(t, key, orderBody(test.change))
		require.Equal(t, http.StatusUnprocessableEntity, got.status, "%s: %s", name, got.body)
		p := got.problem(t)
		require.Equal(t, "validation-failed", p.slug(), name)
		require.Equal(t, []string{test.pointer}, p.pointers(), name)
		require.NotEmpty(t, p.Errors[0].Message, name)
	}
	require.Equal(t, before, f.rowCounts(t))
	require.Equal(t, http.StatusCreated, f.create(t, key, orderBody()).status, "the key was not used")
}

func TestAllFaultsOfAnOrderAreListed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.create(t, newKey(), `{"currency":"USD","items":[{"sku":"tea","quantity":0}],"status":"paid"}`).problem(t)
	require.ElementsMatch(t, []string{
		"/email", "/payment_method", "/items/0/quantity", "/items/0/unit_amount", "/status", "/currency",
	}, p.pointers())
}

// A request may have hundreds of faults. The response lists the first hundred.
func TestAListOfFaultsIsBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	members := map[string]int{}
	for i := range 900 {
		members[fmt.Sprint(i)] = i
	}
	hostile, err := json.Marshal(members)
	require.NoError(t, err)
	got := f.create(t, newKey(), string(hostile))
	require.Equal(t, "validation-failed", got.problem(t).slug())
	require.Len(t, got.problem(t).Errors, 100)
	require.Less(t, len(got.body), 16<<10)
}

func TestTextsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	notes := map[string]string{
		"NUL":       "a\x00b",
		"controls":  "\r\n\t\x1b[31m\u2028",
		"sql":       `'; DROP TABLE orders; -- $1 E'\\'`,
		"html":      `<script>alert(1)</script>&amp;`,
		"emoji":     "👩‍🚀",
		"\x00":      "a name, too",
		"empty":     "",
		"rtl":       "\u202etxt.exe",
		"not_found": "\ufffd",
	}
	want := []orders.Item{{SKU: `'; --`, Description: "Thé <b>à</b> 'x' \u2028 👩‍🚀", Quantity: 1, UnitAmount: 100}}
	key, sent := newKey(), orderBody(withMember("metadata", notes), withMember("items", want))
	got := f.create(t, key, sent)
	require.Equal(t, http.StatusCreated, got.status, "%s", got.body)
	require.Equal(t, notes, got.order(t).Metadata)
	require.Equal(t, want, got.order(t).Items)
	require.Equal(t, string(got.body), string(f.create(t, key, sent).body))
	require.Equal(t, string(got.body), string(f.get(t, got.header.Get("Location")).body))
}

func TestBodiesUpToTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 65_536
	f := newFixture(t)
	pad := func(n int) string { return orderBody() + strings.Repeat(" ", n-len(orderBody())) }
	for name, test := range map[string]struct {
		body   string
		edit   requestEdit
		status int
	}{
		"the limit":                     {pad(limit), func(*http.Request) {}, http.StatusCreated},
		"one more":                      {pad(limit + 1), func(*http.Request) {}, http.StatusRequestEntityTooLarge},
		"the limit in chunks":           {pad(limit), chunked, http.StatusCreated},
		"one more in chunks":            {pad(limit + 1), chunked, http.StatusRequestEntityTooLarge},
		"a million members":             {`{` + strings.Repeat(`"a":1,`, 1_000_000) + `"b":1}`, func(*http.Request) {}, http.StatusRequestEntityTooLarge},
		"one more, and not JSON either": {strings.Repeat("x", limit+1), chunked, http.StatusRequestEntityTooLarge},
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

func TestMediaTypes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		edits []requestEdit
		fine  bool
	}{
		"JSON":                             {[]requestEdit{header("Content-Type", "application/json")}, true},
		"JSON in capitals":                 {[]requestEdit{header("Content-Type", "Application/Json")}, true},
		"JSON in UTF-8":                    {[]requestEdit{header("Content-Type", "application/json;charset=utf-8")}, true},
		"JSON in UTF-8, in quotes":         {[]requestEdit{header("Content-Type", `application/json; charset="UTF-8"`)}, true},
		"JSON with another parameter":      {[]requestEdit{header("Content-Type", "application/json; v=1")}, true},
		"no encoding, said aloud":          {[]requestEdit{header("Content-Encoding", "Identity")}, true},
		"none":                             {[]requestEdit{header("Content-Type")}, false},
		"empty":                            {[]requestEdit{header("Content-Type", "")}, false},
		"a form":                           {[]requestEdit{header("Content-Type", "application/x-www-form-urlencoded")}, false},
		"text":                             {[]requestEdit{header("Content-Type", "text/plain")}, false},
		"text that says it is JSON":        {[]requestEdit{header("Content-Type", "text/json")}, false},
		"JSON of another kind":             {[]requestEdit{header("Content-Type", "application/merge-patch+json")}, false},
		"a problem":                        {[]requestEdit{header("Content-Type", "application/problem+json")}, false},
		"JSON in Latin-1":                  {[]requestEdit{header("Content-Type", "application/json; charset=iso-8859-1")}, false},
		"JSON in UTF-16":                   {[]requestEdit{header("Content-Type", "application/json; charset=utf-16")}, false},
		"JSON in nothing":                  {[]requestEdit{header("Content-Type", `application/json; charset=""`)}, false},
		"a parameter without a value":      {[]requestEdit{header("Content-Type", "application/json; charset")}, false},
		"two charsets":                     {[]requestEdit{header("Content-Type", "application/json; charset=utf-8; charset=utf-16")}, false},
		"two media types in one line":      {[]requestEdit{header("Content-Type", "application/json, text/plain")}, false},
		"two lines":                        {[]requestEdit{header("Content-Type", "application/json", "text/plain")}, false},
		"two equal lines":                  {[]requestEdit{header("Content-Type", "application/json", "application/json")}, false},
		"gzip":                             {[]requestEdit{header("Content-Encoding", "gzip")}, false},
		"gzip behind identity":             {[]requestEdit{header("Content-Encoding", "identity", "gzip")}, false},
		"gzip behind identity in one line": {[]requestEdit{header("Content-Encoding", "identity, gzip")}, false},
		"an unknown encoding":              {[]requestEdit{header("Content-Encoding", "zip")}, false},
	}
	f := newFixture(t)
	for name, test := range tests {
		before := f.rowCounts(t)
		got := f.create(t, newKey(), orderBody(), test.edits...)
		if test.fine {
			require.Equal(t, http.StatusCreated, got.status, "%s: %s", name, got.body)
			continue
		}
		require.Equal(t, http.StatusUnsupportedMediaType, got.status, "%s: %s", name, got.body)
		require.Equal(t, "unsupported-media-type", got.problem(t).slug(), name)
		require.NotEmpty(t, got.header.Get("Idempotency-Key"), name)
		require.Equal(t, before, f.rowCounts(t), name)
	}
}

// Each text of an order is taken up to the length that the contract names, kept, and
// refused beyond it. A new one is found here by itself.
func TestTextsAreKeptUpToTheirLimit(t *testing.T) {
	t.Parallel()
	c, err := loadContract()
	require.NoError(t, err)
	type object = map[string]any
	type text struct {
		at   string // a JSON pointer
		name string
		max  *uint64
		send func(value string) func(object) // puts it into a request
		kept func(order object) any          // finds it in the answer; nil where that has none
	}
	var texts []text
	request, answered := c.doc.Components.Schemas["OrderRequest"].Value, c.doc.Components.Schemas["Order"].Value
	for name, schema := range request.Properties {
		member := text{"/" + name, name, schema.Value.MaxLength, func(value string) func(object) { return withMember(name, value) }, nil}
		if answered.Properties[name] != nil {
			member.kept = func(order object) any { return order[name] }
		}
		texts = append(texts, member)
	}
	for name, schema := range request.Properties["items"].Value.Items.Value.Properties {
		texts = append(texts, text{"/items/0/" + name, name, schema.Value.MaxLength, func(value string) func(object) {
			return withMember("items", []any{object{"sku": "tea", "quantity": 1, "unit_amount": 100, name: value}})
		}, func(order object) any { return order["items"].([]any)[0].(object)[name] }})
	}

	// Where not every letter will do. Nobody has that payment method.
	long := map[string]func(n int) string{
		"email":          func(n int) string { return "a@" + strings.Repeat(strings.Repeat("x", 60)+".", 5)[:n-3] + "x" },
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
		if member.kept == nil {
			require.NotEqual(t, "validation-failed", got.problem(t).slug(), member.at)
		} else {
			require.Equal(t, http.StatusCreated, got.status, "%s: %s", member.at, got.body)
			for _, answer := range []response{got, f.get(t, got.header.Get("Location"))} {
				var order object
				require.NoError(t, json.Unmarshal(answer.body, &order))
				require.Equal(t, value(limit), member.kept(order), "%s: %s", member.at, answer.body)
			}
		}
		got = f.create(t, newKey(), orderBody(member.send(value(limit+1))))
		require.Equal(t, http.StatusUnprocessableEntity, got.status, "%s: %s", member.at, got.body)
		require.Equal(t, []string{member.at}, got.problem(t).pointers())
	}
	require.GreaterOrEqual(t, tried, 4)
}
