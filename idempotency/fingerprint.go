package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/gowebpki/jcs"
)

// ErrMalformed says that bytes are not the JSON object a request must be.
var ErrMalformed = errors.New("malformed JSON")

const (
	// maxDepth bounds the nesting of a request. Orders need three levels.
	maxDepth = 32

	// maxInteger is the largest integer that every JSON reader keeps exactly,
	// 2^53 − 1 (RFC 8785 section 3.2.2.3). Beyond it two different numbers would
	// have one fingerprint.
	maxInteger = 1<<53 - 1
)

// Canonicalize returns body in the canonical form of RFC 8785, so that a retry
// which serialises the same values in another way is the same request (R3).
// It takes one JSON object and nothing else, and returns an error that wraps
// [ErrMalformed] and says what is wrong for duplicate members, invalid UTF-8,
// lone surrogates, trailing data, integers beyond 2^53 − 1 and nesting deeper
// than 32.
func Canonicalize(body []byte) ([]byte, error) {
	switch trimmed := bytes.TrimLeft(body, " \t\r\n"); {
	case len(trimmed) == 0:
		return nil, fmt.Errorf("%w: the body is empty", ErrMalformed)
	case trimmed[0] != '{':
		return nil, fmt.Errorf("%w: the body must be a JSON object", ErrMalformed)
	}
	if err := checkLimits(body); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	canonical, err := jcs.Transform(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return canonical, nil
}

// checkLimits refuses what the canonical form would hide (large integers) or
// what costs more to parse than it is worth (deep nesting).
func checkLimits(body []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	depth := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch v := token.(type) {
		case json.Delim:
			if v == '{' || v == '[' {
				depth++
			} else {
				depth--
			}
			if depth > maxDepth {
				return fmt.Errorf("nested deeper than %d levels", maxDepth)
			}
		case json.Number:
			if f, err := v.Float64(); err != nil || math.Abs(f) > maxInteger {
				return fmt.Errorf("number at byte %d is beyond 2^53 − 1", decoder.InputOffset())
			}
		}
	}
}

// fingerprintVersion is the first byte of a fingerprint. A change of what is
// hashed is a new version, compared only with its own kind.
const fingerprintVersion = 1

// fingerprint tells requests under one key apart: a version byte and SHA-256
// over method, path and canonical parameters (R3). Method and path cannot
// contain a zero byte, so no two requests have the same input.
func fingerprint(method, path string, params []byte) []byte {
	hash := sha256.New()
	hash.Write([]byte(method))
	hash.Write([]byte{0})
	hash.Write([]byte(path))
	hash.Write([]byte{0})
	hash.Write(params)
	return hash.Sum([]byte{fingerprintVersion})
}
