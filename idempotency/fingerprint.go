package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

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

// checkLimits refuses what is no JSON, and then what the canonical form would
// hide (large integers) or what costs more to parse than it is worth (deep
// nesting). It runs for every request, so it looks at the bytes as they are.
func checkLimits(body []byte) error {
	if !json.Valid(body) {
		return json.Unmarshal(body, new(json.RawMessage)) // says why not
	}
	depth := 0
	for i := 0; i < len(body); i++ {
		switch c := body[i]; c {
		case '"':
			for i++; body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("nested deeper than %d levels", maxDepth)
			}
		case '}', ']':
			depth--
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			number := body[i : i+numberLength(body[i:])]
			if f, err := strconv.ParseFloat(string(number), 64); err != nil || math.Abs(f) > maxInteger {
				return fmt.Errorf("number at byte %d is beyond 2^53 − 1", i)
			}
			i += len(number) - 1
		}
	}
	return nil
}

// numberLength is the length of the number that valid JSON goes on with.
func numberLength(body []byte) int {
	end := bytes.IndexFunc(body, func(r rune) bool { return !strings.ContainsRune("+-.0123456789eE", r) })
	if end < 0 {
		return len(body)
	}
	return end
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
