package stripetest

import (
	"fmt"
	"net/http"
	"time"
)

const (
	maxKeyLength = 255

	// keyTTL is the minimum that Stripe promises, which is the harder case for a
	// client.
	keyTTL = 24 * time.Hour
)

type keyUse struct {
	key    string
	path   string
	params string
}

type savedKey struct {
	keyUse
	firstUsed time.Time
	response  *response // nil while the first request is running
}

func (k *savedKey) save(resp *response) { k.response = resp }

func (k *savedKey) forgotten(now time.Time) bool {
	return k.response != nil && now.Sub(k.firstUsed) >= keyTTL
}

// A keyStore stores keys. As at Stripe, a key is independent of endpoint and API key.
type keyStore struct {
	byKey map[string]*savedKey
	byAge []*savedKey // oldest first
}

// find returns a stored response, an error, or neither for an unused key. Stripe does
// not document that the comparison precedes the in-flight check.
func (s *keyStore) find(use keyUse, now time.Time) (*response, *apiError) {
	first, known := s.byKey[use.key]
	if !known || first.forgotten(now) {
		return nil, nil
	}
	switch {
	case first.path != use.path:
		return nil, idempotencyError(fmt.Sprintf("Keys for idempotent requests can only be used for the same endpoint "+
			"they were first used for ('%s' vs '%s'). Try using a key other than '%s' if you meant to execute a "+
			"different request.", use.path, first.path, use.key))
	case first.params != use.params:
		return nil, idempotencyError(fmt.Sprintf("Keys for idempotent requests can only be used with the same "+
			"parameters they were first used with. Try using a key other than '%s' if you meant to execute a "+
			"different request.", use.key))
	case first.response == nil:
		return nil, keyInUse(use.key)
	}
	replay := *first.response
	replay.replayed = true
	return &replay, nil
}

func (s *keyStore) begin(use keyUse, now time.Time) *savedKey {
	for len(s.byAge) > 0 && s.byAge[0].forgotten(now) {
		if oldest := s.byAge[0]; s.byKey[oldest.key] == oldest {
			delete(s.byKey, oldest.key)
		}
		s.byAge = s.byAge[1:]
	}
	if s.byKey == nil {
		s.byKey = make(map[string]*savedKey)
	}
	entry := &savedKey{keyUse: use, firstUsed: now}
	s.byKey[use.key] = entry
	s.byAge = append(s.byAge, entry)
	return entry
}

func idempotencyError(message string) *apiError {
	return &apiError{status: http.StatusBadRequest, Type: "idempotency_error", Message: message}
}

func keyInUse(key string) *apiError {
	return invalidRequest(http.StatusConflict, "idempotency_key_in_use", "", fmt.Sprintf(
		"There is currently another in-progress request using this Idempotent Key (that probably means you "+
			"submitted twice, and the other request is still going through): %s. Please try again later.", key))
}

func badKey() *apiError {
	return invalidRequest(http.StatusBadRequest, "", "", fmt.Sprintf(
		"An Idempotency-Key must have 1 to %d characters.", maxKeyLength))
}
