package main

import (
	"slices"
	"strconv"
	"strings"
)

const highestLevel = 5

const (
	must   = "MUST"
	should = "SHOULD"
	may    = "MAY"
)

// class is what a violation of a clause costs: money, an answer, or only a client's
// convenience.
type class string

const (
	safety   class = "safety"   // a second effect, or a response that is wrong
	liveness class = "liveness" // no final response
	form     class = "form"     // statuses, header fields and members
)

// clause is a clause of spec/idempotent-requests.md. Level 0 and no check: it is not
// observable from outside.
type clause struct {
	id      string
	level   int
	class   class
	keyword string
	title   string
	check   check
}

func clauses() []clause {
	return slices.Clone([]clause{
		{"IR-1", 1, form, must, "One header field carries the key", checkOneField},
		{"IR-2", 1, form, must, "The key is required", checkKeyRequired},
		{"IR-3", 1, form, must, "A key has 16 to 255 visible ASCII characters", checkKeySyntax},
		{"IR-4", 1, form, must, "The raw and the quoted form name the same key", checkForms},
		{"IR-5", 1, form, should, "Responses repeat the key", checkKeyRepeated},
		{"IR-6", 2, safety, must, "A key belongs to one account", checkAccounts},
		{"IR-7", 2, safety, must, "All operations and credentials of an account share its keys", checkSharedKeys},
		{"IR-8", 2, safety, must, "The fingerprint covers the method, the path and every value", checkFingerprint},
		{"IR-9", 2, form, must, "Another serialisation of equal values is the same request", checkSerialisation},
		{"IR-10", 1, form, must, "Ambiguous JSON is rejected", checkAmbiguousJSON},
		{"IR-11", 1, form, must, "The query is not ignored", checkQuery},
		{"IR-12", 2, form, must, "Header fields do not change the request", checkHeaderFields},
		{"IR-13", 2, safety, must, "Reuse is checked first, in every state", checkReuse},
		{"IR-14", 2, form, must, "The key is looked up before the values are validated", checkOrder},
		{"IR-15", 2, form, must, "A rejected request does not use its key", checkCorrectable},
		{"IR-16", 3, safety, must, "One of several concurrent requests is executed", checkRace},
		{"IR-17", 5, safety, must, "An interrupted request is continued", checkContinued},
		{"IR-18", 0, safety, must, "A continued request uses the stored parameters", nil},
		{"IR-19", 2, safety, must, "Final responses are stored, failures included", checkStored},
		{"IR-20", 5, liveness, must, "Other responses are not stored", checkNotStored},
		{"IR-21", 0, safety, must, "A failure is stored only when the effect is impossible", nil},
		{"IR-22", 0, safety, must, "The identifier of an effect is committed before the effect", nil},
		{"IR-23", 0, safety, must, "The response and the record of the effect are committed together", nil},
		{"IR-24", 2, form, must, "A replay has the same status and the same bytes", checkSameBytes},
		{"IR-25", 2, form, must, "A replay has the same Content-Type and Location", checkSameHeaders},
		{"IR-26", 2, form, must, "A replay is marked", checkMarked},
		{"IR-27", 2, safety, must, "A replay has no effect", checkReplayHasNoEffect},
		{"IR-28", 2, form, should, "Responses are not cached", checkNotCached},
		{"IR-29", 3, form, must, "A duplicate of a running request gets 409", checkDuplicate},
		{"IR-30", 3, liveness, must, "The 409 is not stored", checkConflictNotStored},
		{"IR-31", 4, liveness, must, "A disconnected client does not stop its request", checkDisconnected},
		{"IR-32", 4, safety, must, "A lost response can be requested again", checkLostResponse},
		{"IR-33", 5, liveness, must, "A crash blocks a key for a limited time", checkBlocked},
		{"IR-34", 5, safety, must, "An expired key is never executed", checkExpiry},
		{"IR-35", 2, safety, must, "A final response is kept for at least 24 hours", checkRetention},
		{"IR-36", 0, safety, must, "An unfinished key does not expire", nil},
		{"IR-37", 0, safety, must, "A server that does not know a state changes nothing", nil},
		{"IR-38", 1, form, must, "Every error has a verdict", checkVerdict},
		{"IR-39", 1, form, must, "A request that is rejected for its form gets `corrected`", checkCorrected},
		{"IR-40", 3, form, must, "A temporary rejection gets `same-key`", checkTemporary},
		{"IR-41", 2, form, must, "Only a stored failure gets `new-key`", checkNewKey},
		{"IR-42", 2, form, should, "The outcome is machine-readable", checkOutcome},
		{"IR-43", 4, safety, must, "The verdict alone is sufficient", checkLiteralClient},
		{"IR-44", 0, safety, must, "A client stores its key first and keeps it", nil},
		{"IR-45", 3, form, may, "A client can ask not to wait", checkAsync},
		{"IR-46", 3, form, may, "A duplicate can ask to wait", checkWait},
		{"IR-47", 2, form, should, "The status of a key can be read", checkStatus},
		{"IR-48", 3, liveness, must, "A rejection for overload does not use the key", checkOverload},
		{"IR-49", 2, safety, must, "Authentication precedes the lookup", checkAuthentication},
		{"IR-50", 0, safety, must, "Keys and stored responses are not disclosed", nil},
		{"IR-51", 2, form, must, "Reused and expired keys have problem types of their own", checkProblemTypes},
		{"IR-52", 2, form, must, "The lifetime of a final response can be read", checkLifetime},
		{"IR-53", 2, safety, must, "Keys are compared octet by octet", checkOctets},
		{"IR-54", 2, safety, must, "A header field that changes the effect is part of the request", checkSignificantFields},
		{"IR-55", 0, safety, must, "The replay precedes preconditions", nil},
		{"IR-56", 1, form, must, "Methods without an effect ignore the key", checkOtherMethods},
		{"IR-57", 0, safety, must, "A stored response contains no secret", nil},
		{"IR-58", 2, safety, must, "A replay needs the authorisation of the request", checkAuthorisedReplay},
		{"IR-59", 1, form, must, "A browser can send the key and read the result", checkBrowsers},
	})
}

// classOf returns the class of a clause. The preflight has none.
func classOf(id string) class {
	for _, c := range clauses() {
		if c.id == id {
			return c.class
		}
	}
	return form
}

// number returns the number of a clause.
func number(id string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(id, "IR-"))
	return n
}
