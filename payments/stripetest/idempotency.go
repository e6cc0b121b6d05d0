package stripetest

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

const keyTTL = 24 * time.Hour // the minimum that Stripe promises

// A keyUse is compared byte by byte, which detects an unstable encoding; Stripe decodes the
// parameters. It has bytes, because a JSON string cannot hold invalid UTF-8.
type keyUse struct{ Key, Path, Params []byte }

type savedKey struct {
	keyUse
	FirstUsed time.Time
	response  // its Status is 0 while the first request is running
}

// findKey returns a stored response, an error, or neither for an unused key. Stripe does
// not document that the comparison precedes the in-flight check.
func (s *Server) findKey(use keyUse) (*response, *apiError) {
	first, known := s.keys[string(use.Key)]
	switch {
	case !known || first.Status != 0 && s.now().Sub(first.FirstUsed) >= keyTTL:
		return nil, nil
	case !bytes.Equal(first.Path, use.Path):
		return nil, idempotencyError(fmt.Sprintf("Keys for idempotent requests can only be used for the same endpoint "+
			"they were first used for ('%s' vs '%s'). Try using a key other than '%s' if you meant to execute a "+
			"different request.", use.Path, first.Path, use.Key))
	case !bytes.Equal(first.Params, use.Params):
		return nil, idempotencyError(fmt.Sprintf("Keys for idempotent requests can only be used with the same "+
			"parameters they were first used with. Try using a key other than '%s' if you meant to execute a "+
			"different request.", use.Key))
	case first.Status == 0:
		return nil, keyInUse(string(use.Key))
	}
	replay := first.response
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
