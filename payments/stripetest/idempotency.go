package stripetest

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

const keyTTL = 24 * time.Hour // the minimum that Stripe promises

// savedKey stores bytes, because a JSON string cannot hold invalid UTF-8. Stripe compares decoded
// parameters. The fake compares the encoded ones, to detect clients whose encoding is not stable.
type savedKey struct {
	Key, Path, Params []byte
	FirstUsed         time.Time
	response          // its Status is 0 while the first request is running
}

// findKey returns a stored response, an error, or nil for an unused key. Stripe does not
// document that the comparison precedes the in-flight check.
func (s *Server) findKey(c *call) *response {
	path := c.request.URL.Path
	first, known := s.keys[c.key]
	switch {
	case !known || first.Status != 0 && s.now().Sub(first.FirstUsed) >= keyTTL:
		return nil
	case string(first.Path) != path:
		return idempotencyError(fmt.Sprintf("Keys for idempotent requests can only be used for the same endpoint "+
			"they were first used for ('%s' vs '%s'). Try using a key other than '%s' if you meant to execute a "+
			"different request.", path, first.Path, c.key))
	case !bytes.Equal(first.Params, c.record.Body):
		return idempotencyError(fmt.Sprintf("Keys for idempotent requests can only be used with the same "+
			"parameters they were first used with. Try using a key other than '%s' if you meant to execute a "+
			"different request.", c.key))
	case first.Status == 0:
		return keyInUse(c).response()
	}
	replay := first.response
	replay.replayed, c.record.Replayed = "true", true
	return &replay
}

func idempotencyError(message string) *response {
	return (&apiError{status: http.StatusBadRequest, Type: "idempotency_error", Message: message}).response()
}

func keyInUse(c *call) *apiError {
	return invalidRequest(http.StatusConflict, "idempotency_key_in_use", "", fmt.Sprintf(
		"There is currently another in-progress request using this Idempotent Key (that probably means you "+
			"submitted twice, and the other request is still going through): %s. Please try again later.", c.key))
}
