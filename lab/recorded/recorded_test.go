package recorded

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"example.com/orders-api/migrations/dbtest"
)

var recordings = flag.String("recordings", "testdata", "the folder of the recordings")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(dbtest.Main{M: m})
}

// TestRecordings judges all lines of the folder, by default the invented ones of testdata.
func TestRecordings(t *testing.T) {
	all := read(t, *recordings)
	r := run(t, all, honest)
	for _, difference := range r.differences {
		t.Error(difference)
	}
	r.print(all)
}

func run(t *testing.T, all []exchange, edit plant) *report {
	t.Helper()
	r, s := newReport(), newShop(t)
	for _, e := range all {
		if e.isEvent() {
			askEvent(r, s, e, edit)
			continue
		}
		askClient(t, r, e.listed(), edit)
		askFake(t, r, e.listed(), edit)
		askAPI(r, s, e, edit)
	}
	return r
}

func (r *report) print(all []exchange) {
	count := func(of func(exchange) string) string {
		numbers := map[string]int{}
		for _, e := range all {
			numbers[of(e)]++
		}
		return words(numbers)
	}
	out := os.Stdout
	fmt.Fprintf(out, "exchanges and events  %d\n", len(all))
	fmt.Fprintf(out, "versions of the API  %s\n", count(func(e exchange) string {
		version, _, _ := strings.Cut(e.APIVersion, ";")
		if version == "" {
			return "not stated"
		}
		return version
	}))
	fmt.Fprintf(out, "sources  %s\n", count(func(e exchange) string { return e.Source }))
	fmt.Fprintf(out, "what the client read  %s\n", words(r.read))
	fmt.Fprintf(out, "errors by their row in the table  %s\n", words(r.verdicts))
	fmt.Fprintf(out, "responses compared with the fake  %d\n", r.compared)
	fmt.Fprintf(out, "responses not compared with the fake  %s\n", words(r.notCompared))
	fmt.Fprintf(out, "decline codes that reached the API unchanged  %s\n", words(r.declineCodes))
	declines, withoutCard := 0, 0
	for _, e := range all {
		if intent := e.intent(); declineOf(e) != nil && intent.has("payment_method") {
			declines++
			if intent["payment_method"] == nil && intent.text("status") == "requires_payment_method" {
				withoutCard++
			}
		}
	}
	fmt.Fprintf(out, "declines after which the intent has no card  %d of %d\n", withoutCard, declines)
	fmt.Fprintf(out, "differences  %d\n", len(r.differences))
}

// words returns the counts, the largest first.
func words(numbers map[string]int) string {
	names := slices.SortedFunc(maps.Keys(numbers), func(a, b string) int {
		if numbers[a] != numbers[b] {
			return numbers[b] - numbers[a]
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %d", name, numbers[name]))
	}
	return strings.Join(parts, ", ")
}

// compareHeaders compares those that the client reads, and those of the idempotency layer.
func compareHeaders(r *report, e exchange, got http.Header) {
	if len(e.Headers) == 0 {
		return
	}
	for _, name := range []string{"Stripe-Should-Retry", "Idempotent-Replayed", "WWW-Authenticate"} {
		if e.Method == http.MethodGet || e.KeySent { // the client always sends a key
			r.equal(e, ofFake, "the header "+name, e.header(name), got.Get(name))
		}
	}
	for _, name := range []string{"Request-Id", "Date"} {
		r.equal(e, ofFake, "whether there is a header "+name, e.header(name) != "", got.Get(name) != "")
	}
	if e.KeySent {
		for _, name := range []string{"Original-Request", "Idempotency-Key"} {
			r.equal(e, ofFake, "whether there is a header "+name, e.header(name) != "", got.Get(name) != "")
		}
		r.equal(e, ofFake, "whether this was the first request of the key", e.header("Original-Request") == e.header("Request-Id"),
			got.Get("Original-Request") == got.Get("Request-Id"))
	}
}

func compareFailure(r *report, e exchange, got object) {
	want := e.failure()
	for _, name := range []string{"type", "code", "decline_code", "param"} {
		switch {
		case name == "type" && strings.HasPrefix(want.text("message"), "Keys for idempotent requests "): // another one until 2018
		case name == "decline_code" && want.text(name) == "" && got.text(name) == want.text("code"): // repeated since 2025
		case name == "param" && want.text("code") == "resource_missing" && e.Status == http.StatusNotFound && idInPath(e) == "": // of another object
		case e.quoted() && !want.has(name):
		case name == "code" && e.Status == http.StatusForbidden: // another permission
		case ofConfiguration.MatchString(want.text("message")) && want.text("param") == "" && want.text("code") == "" && name != "type":
		default:
			r.equal(e, ofFake, name, want.text(name), got.text(name))
		}
	}
	if hasTestCard(want) {
		r.equal(e, ofFake, "the message", want.text("message"), got.text("message"))
	}
	if intent := e.intent(); intent != nil {
		compareIntent(r, e, intent, got.object("payment_intent"))
	}
}

// hasTestCard reports whether the fake can know the text of a decline.
func hasTestCard(decline object) bool {
	return decline.text("type") == "card_error" && !strings.Contains(cardFor(nil, decline), "_fakeDeclined_")
}

func compareObject(r *report, e exchange, want, got object) {
	if !slices.Contains([]string{"payment_intent", "refund", "dispute", "event", "list", "search_result"}, want.text("object")) {
		return // only headers of a replay
	}
	r.equal(e, ofFake, "the object", want.text("object"), got.text("object"))
	switch want.text("object") {
	case "payment_intent":
		compareIntent(r, e, want, got)
	case "refund":
		compareMembers(r, e, want, got, "amount", "currency", "status", "metadata", "reason", "failure_reason")
		compareTypes(r, e, want, got, "id", "created")
	case "dispute":
		compareMembers(r, e, want, got, "amount", "currency", "status", "reason", "metadata", "is_charge_refundable")
		compareTypes(r, e, want, got, "id", "created", "charge")
	case "event": // the fake has events of changes only, so its objects are others
		compareTypes(r, e, want, got, "id", "type", "created", "data", "livemode", "pending_webhooks", "api_version")
		compareTypes(r, e, want.object("data"), got.object("data"), "object")
	default:
		r.equal(e, ofFake, "whether there is more", want["has_more"], got["has_more"])
		r.equal(e, ofFake, "the number of objects", len(want.list("data")), len(got.list("data")))
		for i, o := range want.list("data") {
			if i < len(got.list("data")) {
				compareObject(r, e, o, got.list("data")[i])
			}
		}
	}
}

// compareIntent compares the state of an intent. Of a recorded intent that is captured by hand, a charge that
// waits for its capture is equivalent to a success.
func compareIntent(r *report, e exchange, want, got object) {
	if got == nil {
		r.differ(e, ofFake, "there is no intent")
		return
	}
	byHand := want.text("capture_method") == "manual"
	status := want.text("status")
	if byHand && status == "requires_capture" {
		status = "succeeded"
	}
	r.equal(e, ofFake, "the intent's status", status, got.text("status"))
	compareMembers(r, e, want, got, "amount", "currency", "metadata")
	compareTypes(r, e, want, got, "id", "client_secret", "created", "livemode")
	if !byHand {
		compareMembers(r, e, want, got, "amount_received")
	}
	compareTypes(r, e, want, got, "canceled_at")
	if !slices.Contains([]string{"automatic", "failed_invoice", "void_invoice"}, want.text("cancellation_reason")) { // Stripe's own
		compareMembers(r, e, want, got, "cancellation_reason")
	}
	for _, name := range []string{"payment_method", "latest_charge"} {
		if want.has(name) && !unstated(want, name) {
			r.equal(e, ofFake, "whether the intent's "+name+" is null", want[name] == nil, got[name] == nil)
		}
	}
	for name, members := range map[string][]string{"last_payment_error": {"type", "code", "decline_code", "message", "param"}, "next_action": {"type"}} {
		if !want.has(name) {
			continue
		}
		wanted, found := want.object(name), got.object(name)
		r.equal(e, ofFake, "whether the intent's "+name+" is null", wanted == nil, found == nil)
		for _, member := range members {
			repeated := member == "decline_code" && wanted.text(member) == "" && found.text(member) == wanted.text("code")
			text := member == "message" && !hasTestCard(wanted)
			if !repeated && !text {
				r.equal(e, ofFake, "the intent's "+name+"."+member, wanted.text(member), found.text(member))
			}
		}
	}
}

// unstated reports whether a member depends on what is not recorded, or on other payment methods than cards.
func unstated(intent object, name string) bool {
	last := intent.object("last_payment_error")
	switch intent.text("status") {
	case "canceled": // the state before it
		return name == "payment_method" || intent.text("capture_method") == "manual"
	case "processing": // a charge follows the notification of the customer, as for cards of India, or it exists
		return name == "latest_charge"
	case "requires_payment_method": // some declines come without a charge, as that of a mandate
		return name == "latest_charge" && last != nil && !last.has("charge")
	default:
		return false
	}
}

// compareMembers compares values, if they are recorded.
func compareMembers(r *report, e exchange, want, got object, names ...string) {
	for _, name := range names {
		if want.has(name) {
			value := want[name]
			if value == nil {
				value = "" // the fake may omit it
			}
			found := got[name]
			if found == nil {
				found = ""
			}
			r.equal(e, ofFake, name, value, found)
		}
	}
}

// compareTypes compares the types of members, if they are recorded.
func compareTypes(r *report, e exchange, want, got object, names ...string) {
	for _, name := range names {
		if want.has(name) {
			r.equal(e, ofFake, "the type of "+name, fmt.Sprintf("%T", want[name]), fmt.Sprintf("%T", got[name]))
		}
	}
}
