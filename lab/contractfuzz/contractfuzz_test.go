package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func bothSpecs(t *testing.T) *contract {
	t.Helper()
	c, err := readContract("../..")
	require.NoError(t, err)
	return c
}

func newID() string { return fmt.Sprintf("%08x-0b4f-87f1-a3a1-5a4c3c0d4e26", rand.Uint32()) }

func paidOrder(id string) node {
	return node{
		"id": id, "status": "paid", "amount": 100, "amount_refunded": 0, "currency": "usd", "email": "ada@example.com",
		"items":             []any{node{"sku": "TEA", "quantity": 1, "unit_amount": 100}},
		"payment_intent_id": "pi_1", "metadata": node{}, "created_at": "2099-11-20T09:30:12.482913Z", "paid_at": "2099-11-20T09:30:12.482913Z",
		"failure": nil, "reference": nil, "disputes": []any{},
	}
}

func problemDocument(slug string, status int, retry, outcome string) node {
	return node{"type": "/problems/" + slug, "title": "t", "status": status, "detail": "d", "retry": retry, "outcome": outcome, "request_id": "request-1"}
}

func TestCheck_responses(t *testing.T) {
	c := bothSpecs(t)
	correct := func() (*exchange, node) {
		operation := c.operations["createOrder"]
		sent := request{operation: operation, method: "POST", header: http.Header{"Idempotency-Key": {"key-0123456789abc"}}}
		return &exchange{request: sent, status: 201, header: http.Header{
			"Content-Type": {"application/json"}, "X-Request-Id": {"request-1"}, "Idempotency-Key": {"key-0123456789abc"}, "Location": {"/v1/orders/" + anyID},
			"Date": {"Sun, 22 Nov 2026 14:00:00 GMT"},
		}}, paidOrder(anyID)
	}
	problem := func(x *exchange, document node, member string, value any) {
		x.status = 422
		x.header.Del("Location")
		x.header.Set("Content-Type", "application/problem+json")
		for name, value := range problemDocument("idempotency-key-reused", 422, "never", "final") {
			document[name] = value
		}
		for name := range document {
			if !slices.Contains([]string{"type", "title", "status", "detail", "retry", "outcome", "request_id"}, name) {
				delete(document, name)
			}
		}
		if member != "" {
			document[member] = value
		}
	}
	for _, test := range []struct {
		name   string
		change func(*exchange, node)
		want   string // "" if it is allowed
	}{
		{"correct", func(*exchange, node) {}, ""},
		{"correct problem", func(x *exchange, d node) { problem(x, d, "", nil) }, ""},
		{"unknown member", func(_ *exchange, d node) { d["receipt_url"] = "x" }, "body: "},
		{"unknown member of an item", func(_ *exchange, d node) { object(list(d["items"])[0])["tax"] = 1 }, "body: "},
		{"missing member", func(_ *exchange, d node) { delete(d, "paid_at") }, "body: "},
		{"another type", func(_ *exchange, d node) { d["amount"] = "100" }, "body: "},
		{"another value", func(_ *exchange, d node) { d["status"] = "disputed" }, "body: "},
		{"another format", func(_ *exchange, d node) { d["created_at"] = "2026-11-20T09:30:12Z" }, "body: "},
		{"a pattern", func(_ *exchange, d node) { d["id"] = strings.ToUpper(anyID) }, "body: "},
		{"text", func(x *exchange, _ node) { x.header.Set("Content-Type", "text/plain") }, "content type"},
		{"status 200", func(x *exchange, _ node) { x.status = 200 }, "status 200 is not documented"},
		{"status 500", func(x *exchange, _ node) { x.status = 500 }, "status 500"},
		{"status 405 without Allow", func(x *exchange, _ node) { x.status = 405 }, "header Allow is missing"},
		{"missing header", func(x *exchange, _ node) { x.header.Del("Location") }, "header Location is missing"},
		{"undocumented header", func(x *exchange, _ node) { x.header.Set("X-Powered-By", "go") }, "header X-Powered-By is not documented"},
		{"invalid header", func(x *exchange, _ node) { x.header.Set("Location", "/orders/1") }, "header Location"},
		{"repeated header", func(x *exchange, _ node) { x.header.Add("Location", "/v1/orders/1") }, "2 lines"},
		{"another key", func(x *exchange, _ node) { x.header.Set("Idempotency-Key", "another-0123456789") }, "Idempotency-Key is not"},
		{"preference", func(x *exchange, _ node) { x.header.Set("Preference-Applied", "wait=1") }, "without Prefer"},
		{"request id", func(x *exchange, _ node) { x.request.header.Set("X-Request-Id", "request-2") }, "X-Request-Id is not"},
		{"status member", func(x *exchange, d node) { problem(x, d, "status", 400) }, "member status is 400"},
		{"request_id", func(x *exchange, d node) { problem(x, d, "request_id", "request-2") }, "request_id is not"},
		{"type of another status", func(x *exchange, d node) { problem(x, d, "type", "/problems/not-found") }, "body: "},
		{"retry", func(x *exchange, d node) { problem(x, d, "retry", "later") }, "body: "},
		{"member of a problem", func(x *exchange, d node) { problem(x, d, "instance", "x") }, "body: "},
		{"replay", func(x *exchange, d node) { problem(x, d, "", nil); x.header.Set("Idempotent-Replayed", "true") }, "not stored"},
	} {
		t.Run(test.name, func(t *testing.T) {
			x, document := correct()
			test.change(x, document)
			x.reply = encode(document)
			broken := strings.Join(c.check(x), "\n")
			if test.want == "" {
				require.Empty(t, broken)
			} else {
				require.Contains(t, broken, test.want)
			}
		})
	}
}

func TestCloseObjects_composed(t *testing.T) {
	var tree node
	require.NoError(t, yaml.Unmarshal([]byte(`
paths:
  /v1/orders:
    get:
      operationId: listOrders
      responses:
        '200':
          content: {application/json: {schema: {$ref: '#/components/schemas/Order'}}}
        default: {description: Any problem.}
components:
  schemas:
    Base: {type: object, required: [id], properties: {id: {type: string}, kind: {type: string, examples: [a, b]}}}
    Order:
      allOf: [{$ref: '#/components/schemas/Base'}, {type: object, properties: {part: {$ref: '#/components/schemas/Base'}, any: {type: object, additionalProperties: true}}}]
`), &tree))
	c, err := loadContract(tree)
	require.NoError(t, err)
	operation := c.operations["listOrders"]
	schema := operation.responses["200"].content["application/json"]
	for text, want := range map[string]bool{
		`{"id":"1"}`: true, `{"id":"1","part":{"id":"2"}}`: true, `{"id":"1","any":{"x":1}}`: true, `{"id":"1","kind":"a"}`: true,
		`{"id":"1","x":1}`: false, `{"id":"1","part":{"id":"2","x":1}}`: false, `{"id":"1","kind":"c"}`: false, `{}`: false,
	} {
		require.Equal(t, want, valid(schema, json.RawMessage(text)), text)
	}
	require.Equal(t, []string{"status 404 is not documented"}, c.check(&exchange{request: request{operation: operation}, status: 404}), "default documents no status")
}

// fake is a small server of orders with a defect.
type fake struct {
	contract *contract
	defect   string

	mu      sync.Mutex
	sent    map[string][]byte // the body that each key was used for
	replies map[string]node
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	header := w.Header()
	header.Set("X-Request-Id", "request-1")
	if id := r.Header.Get("X-Request-Id"); requestIDPattern.MatchString(id) {
		header.Set("X-Request-Id", id)
	}
	reply := func(status int, document node) {
		header.Set("Content-Type", "application/json")
		if status >= 400 {
			header.Set("Content-Type", "application/problem+json")
		}
		w.WriteHeader(status)
		_, _ = w.Write(encode(document))
	}
	problem := func(status int, slug, retry, outcome string) {
		document := problemDocument(slug, status, retry, outcome)
		document["request_id"] = header.Get("X-Request-Id")
		if slug == "validation-failed" {
			document["errors"] = []any{node{"pointer": "", "code": "required", "detail": "d"}}
		}
		reply(status, document)
	}
	if r.Method == http.MethodGet {
		id := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		switch {
		case strings.HasPrefix(r.URL.Path, "/v1/idempotency-keys/"):
			id = strings.TrimPrefix(r.URL.Path, "/v1/idempotency-keys/")
			order := f.replies[id]
			if f.sent[id] == nil {
				problem(404, "not-found", "never", "none")
				return
			}
			at, href := "2099-11-20T09:30:12.482913Z", fmt.Sprint("/v1/orders/", order["id"])
			status := node{
				"key": id, "state": "finished", "operation": "create_order", "recovery_point": "finished", "runs": 1, "created_at": at, "updated_at": at,
				"expires_at": at, "response": node{"status": 201, "type": nil, "location": href}, "order": node{"id": order["id"], "href": href}, "refund": nil,
			}
			if f.defect == "wrong key status" {
				object(status["response"])["status"] = 402
			}
			reply(200, status)
		case r.URL.Path == "/v1/orders":
			data := []any{}
			for _, order := range f.replies {
				data = append(data, order)
			}
			if f.defect == "forgets an order" {
				data = data[1:]
			}
			if f.defect == "pays without a response" {
				data = append(data, paidOrder(newID()))
			}
			reply(200, node{"data": data, "has_more": false})
		default:
			for _, order := range f.replies {
				if order["id"] == id {
					reply(200, order)
				}
			}
		}
		return
	}
	line := r.Header.Get("Idempotency-Key")
	header.Set("Idempotency-Key", line)
	key := line
	if strings.HasPrefix(line, `"`) {
		key = strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(line[1 : len(line)-1])
	}
	body, _ := io.ReadAll(r.Body)
	var value any
	if json.Unmarshal(body, &value) == nil {
		body = encode(value)
	}
	if !strings.HasSuffix(r.URL.Path, "/orders") {
		problem(404, "not-found", "never", "none")
		return
	}
	if f.sent[key] != nil && !bytes.Equal(f.sent[key], body) && f.defect != "accepts reuse" {
		problem(422, "idempotency-key-reused", "never", "final")
		return
	}
	if f.sent[key] == nil && (!valid(f.contract.operations["createOrder"].bodySchema, value) && f.defect != "accepts invalid" || f.defect == "rejects valid") {
		if f.defect == "uses the key of a rejected request" {
			f.sent[key], f.replies[key] = body, paidOrder(newID())
		}
		problem(422, "validation-failed", "corrected", "none")
		return
	}
	if f.sent[key] != nil && f.defect != "replays without the header" && f.defect != "executes twice" {
		header.Set("Idempotent-Replayed", "true")
	}
	if f.sent[key] == nil || f.defect == "executes twice" {
		f.replies[key] = paidOrder(newID())
	}
	order := f.replies[key]
	if f.defect == "replay differs by a byte" && f.sent[key] != nil {
		order = paidOrder(fmt.Sprint(order["id"]))
		order["email"] = "bda@example.com"
	}
	f.sent[key] = body
	header.Set("Location", fmt.Sprint("/v1/orders/", order["id"]))
	reply(201, order)
}

func TestSequence_defects(t *testing.T) {
	for defect, want := range map[string]string{
		"":                                   "",
		"replay differs by a byte":           "responses under one key differ",
		"replays without the header":         "second execution under one key",
		"executes twice":                     "second execution under one key",
		"accepts reuse":                      "another request under the key: expected 422 idempotency-key-reused",
		"accepts invalid":                    "invalid body: expected 422 validation-failed",
		"rejects valid":                      "a valid request was rejected",
		"uses the key of a rejected request": "the key of a rejected request: expected 404 not-found",
		"wrong key status":                   "another response than the request got",
		"forgets an order":                   "an order is not listed",
		"pays without a response":            "an order is paid without a 201",
	} {
		t.Run(defect, func(t *testing.T) {
			c := bothSpecs(t)
			server := httptest.NewServer(&fake{contract: c, defect: defect, sent: map[string][]byte{}, replies: map[string]node{}})
			defer server.Close()
			base, err := url.Parse(server.URL)
			require.NoError(t, err)
			f := newFuzzer(c, base, "ok_test", 1)
			for number := range 20 {
				s := &sequence{fuzzer: f, ctx: t.Context(), number: number, g: generator{rand.New(rand.NewPCG(1, uint64(number))), anyStyle}}
				p := s.purchase("createOrder")
				if p.complete() {
					for _, step := range []func(){p.replay, p.reuse, p.status, func() { p.read() }} {
						step()
					}
				}
				rejected := s.purchase("createOrder")
				s.problem(s.send(rejected.plain.with([]byte("{}"))), "invalid body", 422, "validation-failed")
				rejected.unused()
				concurrent := s.purchase("createOrder")
				s.concurrently([]request{concurrent.again(), concurrent.again(), concurrent.plain}, func(_ int, r request) { concurrent.post(r) })
			}
			f.ledger(&sequence{fuzzer: f, ctx: t.Context(), g: generator{rand.New(rand.NewPCG(1, 1)), smallest}}, "")
			var found []string
			for _, v := range f.violations {
				found = append(found, v.text)
			}
			if want == "" {
				require.Empty(t, found)
			} else {
				require.Contains(t, strings.Join(found, "\n"), want)
			}
		})
	}
}

func TestFaults_invalid(t *testing.T) {
	c := bothSpecs(t)
	for number := range 200 {
		s := &sequence{fuzzer: &fuzzer{contract: c}, g: generator{rand.New(rand.NewPCG(2, uint64(number))), style(number % int(styles))}}
		for _, id := range []string{"createOrder", "createRefund"} {
			operation := c.operations[id]
			value := s.body(operation)
			require.True(t, valid(operation.bodySchema, json.RawMessage(s.g.rewritten(value))))
			name, changed := s.invalid(operation, value)
			require.NotEmpty(t, name)
			require.False(t, valid(operation.bodySchema, changed), name)
		}
	}
}
