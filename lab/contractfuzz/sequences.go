package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// kind is a kind of sequence, with its share.
type kind struct {
	percent int
	run     func(*sequence)
}

func kinds() []kind {
	return []kind{
		{24, (*sequence).orders},
		{22, (*sequence).bodyFaults},
		{14, (*sequence).headerFaults},
		{9, (*sequence).duplicates},
		{5, (*sequence).async},
		{9, (*sequence).refunds},
		{7, (*sequence).reads},
		{4, (*sequence).methods},
		{2, (*sequence).service},
		{4, (*sequence).events},
	}
}

func (s *sequence) orders() {
	p := s.purchase("createOrder")
	if s.g.chance(10) {
		p.plain = p.plain.set("Prefer", pick(s.g, preferences))
	}
	if s.g.chance(3) {
		p.plain = p.plain.with(padded(p.plain.body, maxBody))
	}
	if !p.complete() {
		return
	}
	for range 1 + s.g.IntN(3) {
		pick(s.g, []func(){p.replay, p.replay, p.reuse, p.sameReference, p.status, func() { p.read() }})()
	}
}

func (s *sequence) bodyFaults() {
	p := s.target()
	if p == nil {
		return
	}
	r := p.plain
	var name, slug string
	status := http.StatusUnprocessableEntity
	switch chosen := s.g.IntN(100); {
	case chosen < 3:
		name, status, slug = "body too large", http.StatusRequestEntityTooLarge, "too-large"
		r = r.with(padded(r.body, maxBody+1+s.g.IntN(1000)))
	case chosen < 6 && r.operation.id == "createOrder":
		name, slug = "total out of range", "validation-failed"
		items := pick(s.g, [][]any{
			{node{"sku": "A", "quantity": 1000, "unit_amount": maxTotal}, node{"sku": "B", "quantity": 1, "unit_amount": 1}},
			{node{"sku": "A", "quantity": 1, "unit_amount": minTotal}, node{"sku": "B", "quantity": 1, "unit_amount": -1}},
		})
		r = r.with(encode(fault{path: []any{"items"}, value: items}.apply(p.value)))
	case chosen < 12 && r.operation.id == "createOrder":
		changed := fault{path: []any{"email"}, value: pick(s.g, addresses)}.apply(p.value)
		name, slug, r = "unusual address", "validation-failed", r.with(encode(changed))
		if valid(r.operation.bodySchema, changed) {
			p.value, p.plain = changed, r
			p.complete()
			return
		}
	case chosen < 40:
		var body []byte
		name, body = s.g.unreadable(r.body)
		r, status, slug = r.with(append([]byte{}, body...)), http.StatusBadRequest, "malformed-request"
	default:
		var changed any
		if name, changed = s.invalid(r.operation, p.value); name == "" {
			return
		}
		if r, slug = r.with(encode(changed)), "validation-failed"; object(changed) == nil {
			status, slug = http.StatusBadRequest, "malformed-request"
		}
	}
	if len(r.body) > maxBody {
		status, slug = http.StatusRequestEntityTooLarge, "too-large"
	}
	s.problem(s.send(r), name, status, slug)
	p.unused()
}

// target returns a valid order, or a valid refund of a paid order.
func (s *sequence) target() *purchase {
	if s.g.chance(85) {
		return s.purchase("createOrder")
	}
	order := s.orderOf(maxTotal)
	if !order.complete() || order.first.status != http.StatusCreated {
		return nil
	}
	return s.purchase("createRefund", order.first.text("id"))
}

// invalid returns a value with one fault, or no name if it found none.
func (s *sequence) invalid(o *operation, value any) (string, any) {
	faults := s.g.faults(o.body, value, nil)
	for range 20 {
		chosen := pick(s.g, faults)
		if changed := chosen.apply(value); !valid(o.bodySchema, changed) {
			return fmt.Sprint(chosen.name, " at ", location(chosen.path)), changed
		}
	}
	return "", nil
}

// location is the path of a fault without indexes and client-defined names, so that equal
// violations have equal texts.
func location(path []any) string {
	var text strings.Builder
	for _, step := range path {
		if name, ok := step.(string); ok && memberName.MatchString(name) {
			text.WriteString("/" + name)
		}
	}
	return text.String()
}

var memberName = regexp.MustCompile(`^[a-z_]{1,20}$`)

func padded(body []byte, size int) []byte {
	return slices.Concat(body, bytes.Repeat([]byte(" "), size-len(body)))
}

// headerFault changes the headers or the query of a POST. Without a status the change is
// allowed.
type headerFault struct {
	name   string
	change func(request) request
	status int
	slugs  []string
}

func (s *sequence) headerFault(key string) headerFault {
	set := func(name string, status int, slug string, header string, lines ...string) headerFault {
		return headerFault{name, func(r request) request { return r.set(header, lines...) }, status, []string{slug}}
	}
	query := func(text string, status int) headerFault {
		return headerFault{"query " + text, func(r request) request { r.target += text; return r }, status, []string{"validation-failed"}}
	}
	badKey := func(name string, lines ...string) headerFault {
		return set(name, 400, "idempotency-key-invalid", "Idempotency-Key", lines...)
	}
	token := s.apiKey
	return pick(s.g, []headerFault{
		set("no key", 400, "idempotency-key-missing", "Idempotency-Key"),
		{"empty key", func(r request) request { return r.set("Idempotency-Key", "") }, 400, []string{"idempotency-key-missing", "idempotency-key-invalid"}},
		badKey("key of 15 characters", strings.Repeat("k", 15)), badKey("key of 256 characters", strings.Repeat("k", 256)),
		badKey("quoted key of 15 characters", quoted(strings.Repeat("k", 15))), badKey("quoted key of 256 characters", quoted(strings.Repeat("k", 256))),
		badKey("key with a blank", "a key with blanks in it"), badKey("key that is not ASCII", "schlüssel-0123456789"),
		badKey("two keys", key, key), badKey("two keys", "one-"+key, "two-"+key), badKey("key with parameters", quoted(strings.Repeat("k", 20))+";a=1"),
		badKey("quoted key without an end", `"`+strings.Repeat("k", 20)), badKey("quoted key with a wrong escape", `"\k`+strings.Repeat("k", 20)+`"`),
		set("no content type", 415, "unsupported-media-type", "Content-Type"), set("text", 415, "unsupported-media-type", "Content-Type", "text/plain"),
		set("form", 415, "unsupported-media-type", "Content-Type", "application/x-www-form-urlencoded"),
		set("charset", 415, "unsupported-media-type", "Content-Type", "application/json; charset=iso-8859-1"),
		set("problem", 415, "unsupported-media-type", "Content-Type", "application/problem+json"),
		set("two content types", 415, "unsupported-media-type", "Content-Type", "application/json", "application/json"),
		set("malformed content type", 415, "unsupported-media-type", "Content-Type", "application/json; ="),
		set("gzip", 415, "unsupported-media-type", "Content-Encoding", "gzip"), set("brotli", 415, "unsupported-media-type", "Content-Encoding", "identity, br"),
		set("no API key", 401, "unauthorized", "Authorization"), set("empty API key", 401, "unauthorized", "Authorization", "Bearer "),
		set("basic", 401, "unauthorized", "Authorization", "Basic b2s6b2s="), set("two API keys", 401, "unauthorized", "Authorization", "Bearer "+token, "Bearer "+token),
		set("wrong API key", 401, "unauthorized", "Authorization", "Bearer "+token[:len(token)-1]), set("API key without scheme", 401, "unauthorized", "Authorization", token),
		query("?dry_run=true", 422), query("?%zz", 422), query("?a", 422), query("?limit=1", 422), query("?", 0),
		set("identity", 0, "", "Content-Encoding", "identity"), set("bearer in lower case", 0, "", "Authorization", "bearer   "+token),
		set("preference", 0, "", "Prefer", pick(s.g, preferences)), set("Accept", 0, "", "Accept", "text/html"), set("Cookie", 0, "", "Cookie", "a=b"),
	})
}

func (s *sequence) headerFaults() {
	p := s.target()
	if p == nil {
		return
	}
	chosen := s.headerFault(p.key)
	r := chosen.change(p.plain)
	if chosen.status == 0 {
		p.plain = r
		p.complete()
		return
	}
	s.problem(s.send(r), chosen.name, chosen.status, chosen.slugs...)
	p.unused()
}

// duplicates sends one request several times at once, sometimes with a different request
// under the same key.
func (s *sequence) duplicates() {
	p := s.target()
	if p == nil {
		return
	}
	other := s.purchaseOf(s.request(p.plain.operation.id), s.body(p.plain.operation), p.key)
	other.plain.target = p.plain.target
	mixed := s.g.chance(25) && string(encode(other.value)) != string(encode(p.value))
	requests := make([]request, 2+s.g.IntN(3))
	for i := range requests {
		requests[i] = p.again()
	}
	if mixed {
		requests[0] = other.plain
	}
	s.concurrently(requests, func(i int, r request) {
		if mixed && i == 0 {
			x := other.post(r)
			s.expect(x, x != nil && (x.final() || x.requiresAction() || x.status == http.StatusConflict || isProblem(x, "idempotency-key-reused")), "unexpected response to a different concurrent request")
			return
		}
		x := p.post(r)
		s.expect(x, x != nil && (x.final() || x.requiresAction() || x.status == http.StatusConflict || mixed && isProblem(x, "idempotency-key-reused")), "unexpected response to a concurrent duplicate")
	})
	if other.executions > 0 {
		s.expect(other.first, p.executions == 0, "two different requests were executed under one key")
		return
	}
	if mixed && p.first == nil {
		return // the other request may have claimed the key
	}
	if p.complete() {
		s.expect(p.first, p.executions == 1 || p.lost, "%d of the concurrent requests were executed", p.executions)
		p.replay()
	}
}

func (s *sequence) async() {
	p := s.target()
	if p == nil {
		return
	}
	r := p.plain.set("Prefer", pick(s.g, [][]string{{"respond-async"}, {"respond-async, wait=1"}, {"wait=1", "Respond-Async"}, {`respond-async=""; a=b`}})...)
	x := p.post(r)
	if x == nil {
		return
	}
	if x.status == http.StatusAccepted {
		s.expect(x, x.requiresAction() || strings.HasPrefix(x.header.Get("Preference-Applied"), "respond-async"), "202 without the preference")
		s.expect(x, x.header.Get("Location") == keyPath(p.key), "Location of a 202 is %q", x.header.Get("Location"))
		status := s.send(s.request("getIdempotencyKey", p.key).set("Prefer", "wait=2"))
		s.expect(status, status != nil && status.status == http.StatusOK, "the key of a 202 is not found")
	} else {
		s.expect(x, x.final(), "a valid request was rejected")
	}
	if p.complete() {
		p.replay()
		p.status()
	}
}

// refunds refunds a paid order in parts, up to the paid amount.
func (s *sequence) refunds() {
	amount := 100 + s.g.IntN(100_000)
	order := s.orderOf(amount)
	if !order.complete() || !s.expect(order.first, order.first.status == http.StatusCreated, "a valid order was not paid") {
		return
	}
	id, remaining := order.first.text("id"), amount
	refund := func(value node) *purchase {
		return s.purchaseOf(s.request("createRefund", id), value, s.key())
	}
	for range 1 + s.g.IntN(4) {
		switch chosen := s.g.IntN(4); {
		case remaining == 0:
			s.problem(s.send(refund(node{}).plain), "refund of a refunded order", http.StatusUnprocessableEntity, "order-not-refundable")
		case chosen == 0:
			p := refund(node{"amount": remaining + 1 + s.g.IntN(1000)})
			x := s.send(p.plain)
			if s.problem(x, "refund of too much", http.StatusUnprocessableEntity, "refund-exceeds-remaining") {
				s.expect(x, fmt.Sprint(x.document["remaining"]) == strconv.Itoa(remaining), "remaining is not %d", remaining)
			}
		case chosen == 1: // two at once, of which only one is possible
			pair := []*purchase{refund(node{"amount": remaining}), refund(node{"amount": remaining})}
			s.concurrently([]request{pair[0].plain, pair[1].plain}, func(i int, r request) { pair[i].post(r) })
			made := 0
			for _, p := range pair {
				if p.first != nil && p.first.status == http.StatusCreated {
					made++
				}
			}
			s.expect(order.first, made <= 1, "two concurrent full refunds both succeeded")
			remaining -= made * remaining
		default:
			value := node{}
			if s.g.chance(80) {
				value["amount"] = 1 + s.g.IntN(remaining)
			}
			if s.g.chance(50) {
				value["reason"] = "requested_by_customer"
			}
			p := refund(value)
			if !p.complete() || p.first.status != http.StatusCreated {
				continue
			}
			made, _ := p.first.document["amount"].(json.Number).Int64()
			s.expect(p.first, value["amount"] == nil && int(made) == remaining || value["amount"] == int(made), "the refunded amount differs from the request")
			remaining -= int(made)
			pick(s.g, []func(){p.replay, p.reuse, p.sameReference, p.status, func() { p.read() }})()
		}
	}
	if x := order.read(); x != nil {
		s.expect(x, fmt.Sprint(x.document["amount_refunded"]) == strconv.Itoa(amount-remaining), "amount_refunded is not %d", amount-remaining)
	}
	if x := s.send(s.request("listRefunds", id)); x != nil {
		s.page(x, 20)
	}
	order.replay()
}

func (s *sequence) page(x *exchange, limit int) {
	data := list(x.document["data"])
	sorted := slices.IsSortedFunc(data, func(a, b any) int {
		return strings.Compare(fmt.Sprint(object(b)["created_at"]), fmt.Sprint(object(a)["created_at"]))
	})
	s.expect(x, x.status == http.StatusOK && len(data) <= limit, "a page contains %d entries", len(data))
	s.expect(x, sorted, "a page is not sorted by time, newest first")
}

func (s *sequence) reads() {
	ids := []string{anyID, strings.ToUpper(anyID), "00000000-0000-0000-0000-000000000000", "x", strings.ReplaceAll(anyID, "-", ""), "{" + anyID + "}", "urn:uuid:" + anyID, "a/b", "%", "ä", "\x00"}
	id := pick(s.g, []string{"getOrder", "getRefund", "getIdempotencyKey", "listRefunds", "listOrders", "listOrders", "listOrders"})
	r := s.request(id, pick(s.g, ids), pick(s.g, ids))
	if id == "listOrders" {
		r = s.request(id)
	}
	if s.g.chance(20) {
		r.method = http.MethodHead
	}
	switch {
	case s.g.chance(10):
		s.problem(s.send(r.set("Authorization")), "read without API key", http.StatusUnauthorized, "unauthorized")
	case id != "listOrders" && s.g.chance(20) && len(r.operation.query) == 0:
		r.target += pick(s.g, []string{"?limit=1", "?%zz", "?a=b&c", "?verbose"})
		s.problem(s.send(r), "unknown parameter", http.StatusUnprocessableEntity, "validation-failed")
	case id != "listOrders":
		s.problem(s.send(r), "nothing with this id", http.StatusNotFound, "not-found")
	case s.g.chance(50):
		schema := r.operation.query["limit"]
		most := number(schema["maximum"], 100)
		r.target += "?" + pick(s.g, []string{
			"limit=0", "limit=-1", fmt.Sprint("limit=", most+1), "limit=1e1", "limit=1.0", "limit=01", "limit=%2B1", "limit=", "limit=x", "limit", "limit=1&limit=1", "limit=٣",
			"limit=99999999999999999999", "after=", "after=x", "after=" + anyID, "after=" + strings.ToUpper(anyID), "offset=1", "limit=1&page=2", "%zz", "limit=1;after=x",
		})
		s.problem(s.send(r), "invalid query", http.StatusUnprocessableEntity, "validation-failed")
	default:
		limit := s.g.between(number(r.operation.query["limit"]["minimum"], 1), 30)
		next := r.target + fmt.Sprint("?limit=", limit)
		r.target = next
		seen := map[string]bool{}
		for range 2 {
			x := s.send(r)
			if x == nil || x.method == http.MethodHead {
				return
			}
			s.page(x, limit)
			for _, order := range list(x.document["data"]) {
				id := fmt.Sprint(object(order)["id"])
				s.expect(x, !seen[id], "an order is on two pages")
				seen[id] = true
				r.target = next + "&after=" + id
			}
			if more, _ := x.document["has_more"].(bool); !more {
				return
			}
		}
	}
}

// methods sends other methods, and requests to unknown addresses.
func (s *sequence) methods() {
	c := s.contract
	rejected := c.operations["listOrders"].responses["401"]
	path := pick(s.g, sortedKeys(c.allowed))
	values := []string{anyID, anyID}
	if strings.HasPrefix(path, "/problems/") {
		values = []string{"not-found"}
	}
	r := request{header: http.Header{}, target: fill(path, slices.Clip(values[:strings.Count(path, "{")]))}
	switch s.g.IntN(3) {
	case 0:
		// Not "/": playground run serves its console there.
		r.method, r.target = pick(s.g, []string{"GET", "POST", "DELETE", "BREW"}), pick(s.g, []string{"/v1", "/v1/", "/v1/orders/", "/v2/orders", "/v1/order", "/V1/orders", "/v1/orders%2F", "/v1/../healthz", "/docs/", "/healthz/x"})
		r.operation = &operation{id: "(unknown address)", responses: map[string]*response{"404": c.notFound, "401": rejected}}
		if s.g.chance(70) {
			r = r.set("Authorization", "Bearer "+s.apiKey)
			s.problem(s.send(r), "an unknown address was not rejected", http.StatusNotFound, "not-found")
		} else {
			x := s.send(r)
			s.expect(x, x != nil && (x.status == http.StatusNotFound || x.status == http.StatusUnauthorized), "an unknown address was not rejected")
		}
	default:
		r.method = pick(s.g, []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get"})
		if slices.Contains(c.allowed[path], r.method) {
			return
		}
		r.operation = &operation{id: "(other method)", responses: map[string]*response{"405": c.notAllowed, "401": rejected}}
		x := s.send(r.set("Authorization", "Bearer "+s.apiKey))
		s.problem(x, "other method", http.StatusMethodNotAllowed, "method-not-allowed")
		s.expect(x, x != nil && sameMethods(x.header.Get("Allow"), c.allowed[path]), "Allow is not %v", c.allowed[path])
		if strings.HasPrefix(path, "/v1/") {
			s.problem(s.send(r), "other method without API key", http.StatusUnauthorized, "unauthorized")
		}
	}
}

func sameMethods(header string, want []string) bool {
	got := strings.Split(header, ", ")
	slices.Sort(got)
	return slices.Equal(got, want)
}

// service reads the pages that need no API key.
func (s *sequence) service() {
	id := pick(s.g, []string{"getHealth", "getReadiness", "getContract", "getProblemPage", "getProblemIndex"})
	r := s.request(id, map[string]string{"getProblemPage": "payment-declined"}[id])
	if s.g.chance(50) {
		r = r.set("Accept-Encoding", "gzip")
	}
	x := s.send(r)
	if !s.expect(x, x != nil && x.status == http.StatusOK, "a page does not have the status 200") {
		return
	}
	if tag := x.header.Get("ETag"); tag != "" {
		x = s.send(r.set("If-None-Match", tag))
		s.expect(x, x != nil && x.status == http.StatusNotModified, "If-None-Match has no effect")
	}
	r.method = http.MethodHead
	x = s.send(r)
	s.expect(x, x != nil && x.status == http.StatusOK, "HEAD differs from GET")
	r.method, r.target = http.MethodGet, r.target+pick(s.g, []string{"?x=1", "?%zz", "?v"})
	s.problem(s.send(r), "unknown parameter", http.StatusUnprocessableEntity, "validation-failed")
	if id == "getProblemPage" {
		s.problem(s.send(s.request(id, pick(s.g, []string{"nothing", "..", "x/y", "%00"}))), "unknown page", http.StatusNotFound, "not-found")
	}
}

// ledger compares the listed orders with those created with 201. since is the time of the
// first request.
func (f *fuzzer) ledger(s *sequence, since string) {
	found, r := map[string]bool{}, s.request("listOrders")
	var last *exchange
	for target := "?limit=100"; target != ""; {
		r.target = "/v1/orders" + target
		if last = s.send(r); last == nil || !s.expect(last, last.status == http.StatusOK, "the orders cannot be listed") {
			return
		}
		target = ""
		for _, order := range list(last.document["data"]) {
			order := object(order)
			if fmt.Sprint(order["created_at"]) < since {
				break
			}
			id := fmt.Sprint(order["id"])
			found[id] = order["status"] == "paid" || order["status"] == "partially_refunded" || order["status"] == "refunded"
			target = "?limit=100&after=" + id
		}
		if more, _ := last.document["has_more"].(bool); !more {
			break
		}
	}
	for _, id := range sortedKeys(found) {
		s.expect(last, !found[id] || f.paid[id], "an order is paid without a 201: %s", id)
		s.expect(last, found[id] || !f.paid[id], "an order has a 201 but is not paid: %s", id)
	}
	for _, id := range sortedKeys(f.paid) {
		_, listed := found[id]
		s.expect(last, listed, "an order is not listed: %s", id)
	}
}
