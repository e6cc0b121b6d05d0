package stripetest

import (
	"fmt"
	"net/http"
	"time"
)

const keyTTL = 24 * time.Hour // the minimum that Stripe promises

type keyUse struct {
	key    string
	path   string
	params string // compared byte by byte, which detects an unstable encoding; Stripe decodes them
}

type savedKey struct {
	keyUse
	firstUsed time.Time
	response  *response // nil while the first request is running
}

// findKey returns a stored response, an error, or neither for an unused key. Stripe does
// not document that the comparison precedes the in-flight check.
func (s *Server) findKey(use keyUse) (*response, *apiError) {
	first, known := s.keys[use.key]
	switch {
	case !known || first.response != nil && s.now().Sub(first.firstUsed) >= keyTTL:
		return nil, nil
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

func idempotencyError(message string) *apiError {
	return &apiError{status: http.StatusBadRequest, Type: "idempotency_error", Message: message}
}

func keyInUse(key string) *apiError {
	return invalidRequest(http.StatusConflict, "idempotency_key_in_use", "", fmt.Sprintf(
		"There is currently another in-progress request using this Idempotent Key (that probably means you "+
			"submitted twice, and the other request is still going through): %s. Please try again later.", key))
}
