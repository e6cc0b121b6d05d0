package recorded

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// A fake is a new fake for one exchange.
type fake struct {
	t      *testing.T
	server *stripetest.Server
	url    string
	key    int // number of the latest idempotency key
}

func newFake(t *testing.T) (f *fake, stop func()) {
	server := stripetest.New(stripetest.Options{SearchDelay: -1})
	listener := httptest.NewServer(server)
	return &fake{t: t, server: server, url: listener.URL}, func() { server.Close(); listener.Close() }
}

// A request is what the fake gets. An empty key is a new one.
type request struct {
	method, path, key string
	params            url.Values
}

func (f *fake) send(r request) response {
	f.t.Helper()
	address, body := f.url+r.path, ""
	if r.method == http.MethodGet {
		address += "?" + r.params.Encode()
	} else {
		body = r.params.Encode()
	}
	req, err := http.NewRequestWithContext(f.t.Context(), r.method, address, strings.NewReader(body))
	require.NoError(f.t, err)
	req.Header.Set("Authorization", "Bearer "+testKey)
	if r.method != http.MethodGet {
		f.key++
		req.Header.Set("Idempotency-Key", cmp.Or(r.key, fmt.Sprintf("recorded-key-%d", f.key)))
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	require.NoError(f.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(f.t, err)
	return response{resp.StatusCode, resp.Header, text}
}

// A refusedStep ends the comparison of an exchange.
type refusedStep string

// post is a step before the request that is compared. It may be declined.
func (f *fake) post(path string, params url.Values) object {
	f.t.Helper()
	got := f.send(request{method: http.MethodPost, path: path, params: params})
	o, err := decode(got.body)
	require.NoError(f.t, err)
	if got.status == http.StatusPaymentRequired {
		return o.object("error").object("payment_intent")
	}
	if got.status != http.StatusOK {
		panic(refusedStep(fmt.Sprintf("POST %s %v: %s", path, params, got.body)))
	}
	return o
}

const intents = "/v1/payment_intents"

// intent creates an intent like a recorded one, with a card.
func (f *fake) intent(like object, card string) (id string) {
	f.t.Helper()
	params := url.Values{
		"amount": {fmt.Sprint(cmp.Or(like.number("amount"), 2000))}, "currency": {cmp.Or(like.text("currency"), "usd")},
		"payment_method_types[0]": {"card"},
	}
	for name, value := range like.metadata() {
		params.Set("metadata["+name+"]", value)
	}
	if card != "" {
		params.Set("payment_method", card)
	}
	return f.post(intents, params).text("id")
}

// intentIn creates an intent in the state of a recorded one.
func (f *fake) intentIn(like object) (id string) {
	f.t.Helper()
	card := cardFor(like, like.object("last_payment_error"))
	failed := like.object("last_payment_error") != nil
	status := like.text("status")
	if status == "requires_payment_method" && !failed {
		card = ""
	}
	id = f.intent(like, card)
	if failed || slices.Contains([]string{"succeeded", "requires_capture", "requires_action", "processing"}, status) {
		p := url.Values{}
		if redirect := like.object("next_action").object("redirect_to_url"); redirect != nil {
			p.Set("return_url", redirect.text("return_url"))
		}
		f.post(intents+"/"+id+"/confirm", p)
	}
	if status == "canceled" {
		p := url.Values{}
		if reason := like.text("cancellation_reason"); slices.Contains([]string{"duplicate", "fraudulent", "requested_by_customer", "abandoned"}, reason) {
			p.Set("cancellation_reason", reason)
		}
		f.post(intents+"/"+id+"/cancel", p)
	}
	return id
}

// cardFor returns the card that leads to the recorded result.
func cardFor(intent, failure object) string {
	switch {
	case failure != nil:
		code, declineCode := failure.text("code"), failure.text("decline_code")
		if declineCode == "" && code != "card_declined" {
			declineCode = code // which older versions leave out
		}
		return stripetest.DecliningCard(code, declineCode)
	case intent.text("status") == "requires_action":
		if action := intent.object("next_action").text("type"); !slices.Contains([]string{"", "use_stripe_sdk", "redirect_to_url"}, action) {
			return stripetest.ActionCard(action)
		}
		return "pm_card_threeDSecure2Required"
	case intent.text("status") == "processing":
		return stripetest.ProcessingCard
	default:
		return "pm_card_visa"
	}
}

// params returns those that the program or the fake knows. The others are of recorded programs: customers,
// connected accounts, captures by hand.
func params(e exchange) url.Values {
	known := []string{
		"amount", "currency", "payment_method", "confirm", "off_session", "use_stripe_sdk", "payment_method_types[0]", "reason",
		"automatic_payment_methods[enabled]", "automatic_payment_methods[allow_redirects]", "payment_intent", "limit",
		"return_url", "cancellation_reason",
	}
	values := url.Values{}
	for name := range e.Params {
		if slices.Contains(known, name) || strings.HasPrefix(name, "metadata[") {
			values.Set(name, e.param(name))
		}
	}
	for _, name := range []string{"confirm", "off_session", "use_stripe_sdk", "currency"} { // Stripe accepts True and USD
		if values.Has(name) {
			values.Set(name, strings.ToLower(values.Get(name)))
		}
	}
	if values.Get("off_session") == "false" && values.Get("confirm") != "true" {
		values.Del("off_session")
	}
	if method := values.Get("payment_method"); method != "" && !strings.HasPrefix(method, "pm_card_") {
		values.Set("payment_method", cardFor(e.intent(), declineOf(e)))
	}
	if values.Get("off_session") == "true" && e.failure().text("decline_code") == "authentication_required" {
		values.Set("payment_method", "pm_card_authenticationRequired")
	}
	return values
}

func declineOf(e exchange) object {
	if f := e.failure(); f.text("type") == "card_error" {
		return f
	}
	return nil
}

// askFake sends an equivalent request to the fake, in an equivalent state.
func askFake(t *testing.T, r *report, e exchange, edit plant) {
	t.Helper()
	f, stop := newFake(t)
	defer stop()
	defer func() {
		switch refused := recover().(type) {
		case nil:
		case refusedStep:
			r.differ(e, ofFake, "a step before the request is refused: %s", string(refused))
		default:
			panic(refused)
		}
	}()
	req, reason := f.prepare(e)
	if reason != "" {
		r.notCompared[reason]++
		return
	}
	if e.header("Idempotent-Replayed") == "true" {
		req.key = "recorded-key-again"
		f.send(req)
	}
	r.compared++
	got := f.send(req)
	edit(ofFake, e, &got)
	o, err := decode(got.body)
	if err != nil {
		r.differ(e, ofFake, "no JSON: %s", bytes.TrimSpace(got.body))
		return
	}
	r.equal(e, ofFake, "the status", e.Status, got.status)
	compareHeaders(r, e, got.header)
	if e.Status >= http.StatusBadRequest {
		compareFailure(r, e, o.object("error"))
		return
	}
	compareObject(r, e, e.Body, o)
}

// prepare brings the fake into the state before a recorded request, and returns the equivalent request, or
// why there is none.
func (f *fake) prepare(e exchange) (request, string) {
	f.t.Helper()
	id, action := idInPath(e), ""
	if id != "" {
		action = path(e)
	}
	create := e.Path == intents && e.Method == http.MethodPost
	switch req, ok := f.prepareFault(e); {
	case ok:
		return req, ""
	case create && e.failure() == nil, create && declineOf(e) != nil && params(e).Get("confirm") == "true":
		p := params(e)
		p.Set("payment_method_types[0]", "card")
		p.Del("automatic_payment_methods[enabled]")
		p.Del("automatic_payment_methods[allow_redirects]")
		return request{method: http.MethodPost, path: intents, params: p}, ""
	case create && declineOf(e) != nil: // without parameters
		id = f.intent(e.intent(), cardFor(nil, declineOf(e)))
		return request{method: http.MethodPost, path: intents + "/" + id + "/confirm"}, ""
	case create:
		return f.prepareRefusedCreate(e)
	case action == "confirm" && e.Method == http.MethodPost:
		return f.prepareConfirm(e)
	case action == "cancel" && e.Method == http.MethodPost:
		return f.prepareCancel(e)
	case strings.HasSuffix(e.Path, "/search") && e.Status == http.StatusOK:
		return f.prepareSearch(e)
	case id != "" && action == id && e.Method == http.MethodGet && e.Status == http.StatusOK:
		return request{method: http.MethodGet, path: intents + "/" + f.intentIn(e.Body)}, ""
	case id != "" && e.Status == http.StatusNotFound:
		return request{method: e.Method, path: intents + "/pi_unknown" + map[string]string{http.MethodPost: "/cancel"}[e.Method]}, ""
	case strings.HasSuffix(e.Path, "/refunds") && e.Method == http.MethodPost:
		return f.prepareRefund(e)
	case strings.HasPrefix(e.Path, "/v1/refunds/") && e.Status == http.StatusOK && complete(e.Body, "refund"):
		made, reason := f.refund(f.charged(e.Body), e.Body)
		return request{method: http.MethodGet, path: "/v1/refunds/" + made}, reason
	case strings.HasPrefix(e.Path, "/v1/refunds/") && e.Status == http.StatusNotFound:
		return request{method: http.MethodGet, path: "/v1/refunds/re_unknown"}, ""
	case e.Method == http.MethodGet && e.Status == http.StatusOK && slices.Contains([]string{intents, "/v1/refunds", "/v1/disputes", "/v1/events"}, e.Path):
		return f.prepareList(e)
	case e.header("Idempotent-Replayed") == "true":
		return request{method: http.MethodPost, path: intents, params: url.Values{"amount": {"2000"}, "currency": {"usd"}}}, ""
	default:
		return request{}, "a call that the program never makes"
	}
}

// prepareFault makes the fake fail as Stripe did, for reasons that no request of the program has.
func (f *fake) prepareFault(e exchange) (request, bool) {
	f.t.Helper()
	failure := e.failure()
	var fault stripetest.Fault
	switch message := failure.text("message"); {
	case failure == nil:
		return request{}, false
	case strings.HasSuffix(e.Path, "/search"):
		fault = stripetest.NoSearch
	case e.Status == http.StatusUnauthorized:
		fault = stripetest.Unauthorized
	case e.Status == http.StatusForbidden:
		fault = stripetest.Forbidden
	case failure.text("code") == "lock_timeout":
		fault = stripetest.LockTimeout
	case e.Status == http.StatusTooManyRequests:
		fault = stripetest.RateLimit
	case e.Status == http.StatusConflict:
		fault = stripetest.KeyInUse
	case e.Status == http.StatusInternalServerError:
		fault = stripetest.ErrorBefore
	case strings.HasPrefix(message, "Keys for idempotent requests "):
		first := request{method: http.MethodPost, path: intents, key: "recorded-key-again", params: url.Values{"amount": {"2000"}, "currency": {"usd"}}}
		f.send(first)
		second := first
		second.params = url.Values{"amount": {"2001"}, "currency": {"usd"}}
		if strings.Contains(message, "same endpoint") {
			second.path = "/v1/refunds"
		}
		return second, true
	case e.Status == http.StatusBadRequest && (ofConfiguration.MatchString(message) && failure.text("param") == "" && failure.text("code") == "" ||
		strings.HasPrefix(message, "As per Indian regulations")):
		fault = stripetest.AccountNotReady
	default:
		return request{}, false
	}
	req := request{method: e.Method, path: intents + "/" + f.intent(nil, "pm_card_visa")}
	switch {
	case fault == stripetest.NoSearch:
		req.path, req.params = intents+"/search", url.Values{"query": {"metadata['order_id']:'1'"}}
	case e.Method != http.MethodGet:
		req.method, req.path = http.MethodPost, req.path+"/confirm"
	}
	f.server.Inject(stripetest.Rule{Fault: fault})
	return req, true
}

func (f *fake) prepareRefusedCreate(e exchange) (request, string) {
	f.t.Helper()
	failure := e.failure()
	create := request{method: http.MethodPost, path: intents, params: url.Values{"amount": {"2000"}, "currency": {"usd"}}}
	switch {
	case failure.text("param") == "payment_method" && failure.text("code") == "resource_missing":
		create.params.Set("payment_method", "pm_1Unknown")
	case failure.text("param") == "amount" && e.param("amount") != "":
		create.params.Set("amount", e.param("amount"))
		create.params.Set("currency", strings.ToLower(e.param("currency")))
	case strings.HasPrefix(failure.text("message"), "The provided PaymentMethod was previously used"):
		id := f.intentIn(object{"status": "succeeded"})
		paid, err := decode(f.send(request{method: http.MethodGet, path: intents + "/" + id}).body)
		require.NoError(f.t, err)
		create.params.Set("payment_method", paid.text("payment_method"))
	default:
		return request{}, "a parameter that the program never sends"
	}
	return create, ""
}

func (f *fake) prepareConfirm(e exchange) (request, string) {
	f.t.Helper()
	p, intent := params(e), e.intent()
	id := "pi_unknown"
	switch failure := e.failure(); {
	case e.Status == http.StatusNotFound:
	case failure == nil, declineOf(e) != nil:
		id = f.intent(intent, cmp.Or(p.Get("payment_method"), cardFor(intent, declineOf(e))))
	case strings.Contains(failure.text("message"), "missing a payment method"):
		id = f.intent(intent, "")
	case failure.text("code") == "payment_intent_unexpected_state" && intent != nil:
		id = f.intentIn(intent)
	case failure.text("code") == declineLimit:
		id = f.intent(intent, stripetest.DeclineLimitCard)
	default:
		return request{}, "a parameter that the program never sends"
	}
	return request{method: http.MethodPost, path: intents + "/" + id + "/confirm", params: p}, ""
}

func (f *fake) prepareCancel(e exchange) (request, string) {
	f.t.Helper()
	id, intent := "pi_unknown", e.intent()
	switch {
	case e.Status == http.StatusOK:
		before := maps.Clone(intent)
		before["status"] = "requires_confirmation"
		id = f.intentIn(before)
	case e.failure().text("code") == "payment_intent_unexpected_state" && intent != nil:
		id = f.intentIn(intent)
	case e.Status != http.StatusNotFound:
		return request{}, "a parameter that the program never sends"
	}
	return request{method: http.MethodPost, path: intents + "/" + id + "/cancel", params: params(e)}, ""
}

// charged returns an intent with a charge that a refund like this can come from.
func (f *fake) charged(refund object) (id string) {
	f.t.Helper()
	return f.post(intents, url.Values{
		"amount": {fmt.Sprint(max(refund.number("amount"), 2000))}, "currency": {cmp.Or(refund.text("currency"), "usd")},
		"payment_method_types[0]": {"card"}, "payment_method": {refundCard(refund)}, "confirm": {"true"},
	}).text("id")
}

// refundCard returns the card whose refunds get the status of a recorded one.
func refundCard(refund object) string {
	switch refund.text("status") {
	case "pending":
		return "pm_card_pendingRefund"
	case "failed":
		return "pm_card_refundFail"
	default:
		return "pm_card_visa"
	}
}

// refund makes a refund like a recorded one, or returns why the fake cannot.
func (f *fake) refund(intent string, like object) (id, reason string) {
	f.t.Helper()
	if !slices.Contains([]string{"", "succeeded", "pending", "failed"}, like.text("status")) {
		return "", "a refund in a state that the fake never makes"
	}
	p := url.Values{"payment_intent": {intent}}
	if like.number("amount") > 0 {
		p.Set("amount", fmt.Sprint(like.number("amount")))
	}
	if like.text("reason") != "" {
		p.Set("reason", like.text("reason"))
	}
	for name, value := range like.metadata() {
		p.Set("metadata["+name+"]", value)
	}
	id = f.post("/v1/refunds", p).text("id")
	if like.text("status") == "failed" {
		require.NoError(f.t, f.server.Settle(id, false))
	}
	return id, ""
}

func (f *fake) prepareRefund(e exchange) (request, string) {
	f.t.Helper()
	p := params(e)
	switch failure := e.failure(); {
	case failure == nil && !slices.Contains([]string{"succeeded", "pending"}, e.Body.text("status")):
		return request{}, "a refund in a state that the fake never makes"
	case failure == nil:
		id := f.charged(e.Body)
		p.Set("amount", fmt.Sprint(e.Body.number("amount")))
		p.Set("payment_intent", id)
	case failure.text("code") == "charge_already_refunded":
		id := f.charged(nil)
		f.refund(id, nil) // all of it
		p.Set("payment_intent", id)
	case failure.text("code") == "charge_disputed":
		id := f.charged(nil)
		_, err := f.server.Dispute(id, 2000, "fraudulent", "needs_response")
		require.NoError(f.t, err)
		p.Set("payment_intent", id)
	case failure.text("param") == "amount" && strings.HasPrefix(failure.text("message"), "Refund amount "):
		p.Set("payment_intent", f.charged(nil))
		p.Set("amount", "2001")
	case failure.text("param") == "amount" && p.Has("amount"):
		p.Set("payment_intent", f.charged(nil))
	case failure.text("code") == "resource_missing":
		p.Set("payment_intent", "pi_unknown")
	default:
		return request{}, "a parameter that the program never sends"
	}
	return request{method: http.MethodPost, path: "/v1/refunds", params: p}, ""
}

// prepareList makes a list with as many objects as a recorded page, and more if it has more.
func (f *fake) prepareList(e exchange) (request, string) {
	f.t.Helper()
	p, listed := url.Values{}, e.Body.list("data")
	if limit := e.param("limit"); limit != "" {
		p.Set("limit", limit)
	} else if more, _ := e.Body["has_more"].(bool); more {
		p.Set("limit", fmt.Sprint(len(listed)))
	}
	if next(e) != "" {
		listed = append(slices.Clone(listed), listed[0])
	}
	for _, o := range slices.Backward(listed) {
		switch o.text("object") {
		case "payment_intent":
			f.intentIn(o)
		case "refund":
			if _, reason := f.refund(f.charged(o), o); reason != "" {
				return request{}, reason
			}
		case "dispute":
			_, err := f.server.Dispute(f.charged(object{"amount": o["amount"], "currency": o["currency"]}), o.number("amount"), o.text("reason"), o.text("status"))
			require.NoError(f.t, err)
		case "event":
			f.server.ForeignEvents(1)
		default:
			return request{}, "a list of other objects"
		}
	}
	return request{method: http.MethodGet, path: e.Path, params: p}, ""
}

// prepareSearch makes intents like the recorded results of a search by metadata.
func (f *fake) prepareSearch(e exchange) (request, string) {
	f.t.Helper()
	query := byMetadata.FindStringSubmatch(e.param("query"))
	if e.Path != intents+"/search" || query == nil {
		return request{}, "a search that the program never makes"
	}
	found := e.Body.list("data")
	p := url.Values{"query": {e.param("query")}, "limit": {cmp.Or(e.param("limit"), fmt.Sprint(max(len(found), 1)))}}
	if more, _ := e.Body["has_more"].(bool); more {
		found = append(slices.Clone(found), found[0])
	}
	for _, o := range slices.Backward(found) {
		require.Equal(f.t, query[2], o.metadata()[query[1]], "%s: the query finds its results", e.at)
		f.intentIn(o)
	}
	return request{method: http.MethodGet, path: e.Path, params: p}, ""
}

var byMetadata = regexp.MustCompile(`^metadata\[['"]([^'"]+)['"]\]:['"]([^'"]*)['"]$`)
