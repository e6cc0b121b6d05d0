package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/gowebpki/jcs"
)

// Key is an idempotency key, see [ParseKey].
type Key string

const (
	minKeyLength = 16
	maxKeyLength = 255
)

// ParseKey returns s as a Key. A key has 16 to 255 visible ASCII characters; 255 is
// Stripe's limit.
func ParseKey(s string) (Key, error) {
	if len(s) < minKeyLength || len(s) > maxKeyLength {
		return "", ErrInvalidKey
	}
	for i := range len(s) {
		if s[i] < '!' || s[i] > '~' {
			return "", ErrInvalidKey
		}
	}
	return Key(s), nil
}

// KeyID is the derived id of a key's row (R5).
func KeyID(accountID uuid.UUID, key Key) uuid.UUID {
	return DeriveID("idempotency_key", accountID, key)
}

// DeriveID is the id of what the key's request creates: a UUIDv8 (RFC 9562) from
// SHA-256 over a word without zero bytes, such as "order", account and key (R5).
func DeriveID(word string, accountID uuid.UUID, key Key) uuid.UUID {
	// The zero byte and the fixed length of the account separate the parts.
	input := make([]byte, 0, len(word)+1+len(accountID)+len(key))
	input = append(input, word...)
	input = append(input, 0)
	input = append(input, accountID[:]...)
	input = append(input, key...)
	sum := sha256.Sum256(input)

	var id uuid.UUID
	copy(id[:], sum[:])
	id[6] = id[6]&0x0f | 0x80 // version 8
	id[8] = id[8]&0x3f | 0x80 // variant of RFC 9562
	return id
}

// ErrMalformed means that a body is not an acceptable JSON object.
var ErrMalformed = errors.New("malformed JSON")

const (
	// maxDepth bounds the nesting. Orders need three levels.
	maxDepth = 32

	// maxValues bounds the names and values, which cost far more than their bytes.
	// The largest order has fewer than 1,000.
	maxValues = 2048

	// maxInteger is 2^53 − 1, the largest integer that every JSON reader keeps (RFC
	// 8785 section 3.2.2.3).
	maxInteger         = "9007199254740991"
	maxIntegerExponent = len(maxInteger) - 1

	// maxDigits is the number of significant digits that identify any double.
	maxDigits = 17

	// keptDigits is the number of significant digits that a double always keeps.
	keptDigits = 15

	// minExponent is the decimal exponent of the smallest number except 0. Numbers
	// near 1e-308 are expensive to parse.
	minExponent = -30
)

// Canonicalize returns body, one JSON object, in the canonical form of RFC 8785: the
// same values serialised in another way are the same request (R3). It returns
// [ErrMalformed] for duplicate members, invalid UTF-8, lone surrogates and trailing
// data, for what costs more than its size (R25), and for digits that a double does
// not keep, so that no digit of an amount is lost.
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

// checkLimits rejects invalid JSON, numbers that the canonical form would change, and
// what is expensive to parse.
func checkLimits(body []byte) error {
	if !json.Valid(body) {
		return json.Unmarshal(body, new(json.RawMessage)) // returns the reason
	}
	depth, values := 0, 0
	for i := 0; i < len(body); i++ {
		switch c := body[i]; c {
		case '"':
			values++
			for i++; body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			values++
			if depth++; depth > maxDepth {
				return fmt.Errorf("nested deeper than %d levels", maxDepth)
			}
		case '}', ']':
			depth--
		case 't', 'f', 'n': // true, false, null: each letter occurs in one of them, once
			values++
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			values++
			number := body[i : i+numberLength(body[i:])]
			if err := checkNumber(number); err != nil {
				return fmt.Errorf("number at byte %d %w", i, err)
			}
			i += len(number) - 1
		}
		if values > maxValues {
			return fmt.Errorf("more than %d names and values", maxValues)
		}
	}
	return nil
}

// checkNumber rejects a number outside the limits, in any notation.
func checkNumber(number []byte) error {
	var (
		digits      [maxDigits]byte // the first significant ones
		significant int             // how many there are, from the first to the last that is not 0
		zeros       int             // after the last
		exponent    = -1            // of the first
		fraction    bool
	)
scan:
	for i, c := range number {
		switch {
		case c == '-':
		case c == '.':
			fraction = true
		case c == 'e' || c == 'E':
			written, _ := strconv.Atoi(string(number[i+1:])) // out of range: the nearest int
			exponent += min(max(written, -1<<30), 1<<30)
			break scan
		case c == '0' && significant == 0:
			if fraction {
				exponent--
			}
		default:
			if !fraction {
				exponent++
			}
			if at := significant + zeros; at < maxDigits {
				digits[at] = c
			}
			if zeros++; c != '0' {
				significant, zeros = significant+zeros, 0
			}
		}
	}
	switch first := string(digits[:min(significant, maxDigits)]); {
	case significant == 0:
		return nil
	case exponent < minExponent:
		return errors.New("is closer to 0 than 1e-30")
	case exponent > maxIntegerExponent, exponent == maxIntegerExponent && first > maxInteger:
		return errors.New("is beyond 2^53 − 1")
	case significant > maxDigits:
		return errors.New("has more than 17 significant digits")
	case significant > keptDigits && !doubleKeeps(digits[:significant], exponent):
		return errors.New("has digits that a double does not keep")
	default:
		return nil
	}
}

// doubleKeeps reports whether the double nearest to d.ddd × 10^exponent has the same
// digits. Every double passes as a JSON serialiser writes it.
func doubleKeeps(digits []byte, exponent int) bool {
	text := append([]byte{digits[0], '.'}, digits[1:]...)
	double, _ := strconv.ParseFloat(string(strconv.AppendInt(append(text, 'e'), int64(exponent), 10)), 64)
	for _, precision := range []int{len(digits) - 1, -1} { // the shortest form may round a tie, such as 2^-24, the other way
		if bytes.HasPrefix(strconv.AppendFloat(nil, double, 'e', precision, 64), text) {
			return true
		}
	}
	return false
}

func numberLength(body []byte) int {
	end := bytes.IndexFunc(body, func(r rune) bool { return !strings.ContainsRune("+-.0123456789eE", r) })
	if end < 0 {
		return len(body)
	}
	return end
}

// fingerprintVersion is the first byte of a fingerprint. Another input needs another
// version.
const fingerprintVersion = 1

// fingerprint identifies a request: a version byte and SHA-256 over method, path and
// canonical parameters (R3). Method and path contain no zero byte.
func fingerprint(method, path string, params []byte) []byte {
	hash := sha256.New()
	hash.Write([]byte(method))
	hash.Write([]byte{0})
	hash.Write([]byte(path))
	hash.Write([]byte{0})
	hash.Write(params)
	return hash.Sum([]byte{fingerprintVersion})
}
