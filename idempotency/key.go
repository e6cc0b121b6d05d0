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

// ErrInvalidKey means that [ParseKey] rejected a key.
var ErrInvalidKey = errors.New("an idempotency key is 16 to 255 visible ASCII characters")

// ParseKey accepts 16 to 255 visible ASCII characters. Stripe's limit is 255.
func ParseKey(s string) (Key, error) {
	invisible := func(c rune) bool { return c < '!' || c > '~' }
	if len(s) < 16 || len(s) > 255 || strings.ContainsFunc(s, invisible) {
		return "", ErrInvalidKey
	}
	return Key(s), nil
}

// KeyID derives the id of a key's row.
func KeyID(accountID uuid.UUID, key Key) uuid.UUID {
	return DeriveID("idempotency_key", accountID, key)
}

// DeriveID returns the id of what the key's request creates, a UUIDv8 from a word such as "order",
// the account and the key. A retry after lost rows finds the same object by it (R5, derived ids).
func DeriveID(word string, accountID uuid.UUID, key Key) uuid.UUID {
	// The zero byte and the fixed length of the account separate the parts.
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s%s", word, accountID[:], key))
	id := uuid.UUID(sum[:16])
	id[6] = id[6]&0x0f | 0x80 // version 8
	id[8] = id[8]&0x3f | 0x80 // variant of RFC 9562
	return id
}

// ErrMalformed means that [Canonicalize] rejected a body.
var ErrMalformed = errors.New("malformed JSON")

const (
	maxValues       = 2048      // names and values, which cost more than their bytes, and levels; an order has fewer than 1,000
	maxInteger      = 1<<53 - 1 // the largest that every JSON reader keeps
	minNumber       = 1e-30     // except 0; numbers near 1e-308 are expensive to parse
	maxNumberLength = 100       // bytes; strconv.ParseFloat misreads a number of more than 800 digits
	maxDigits       = 17        // significant digits that identify any double
)

// Canonicalize returns a JSON object in the canonical form of RFC 8785 (R3, canonical fingerprint).
// It also rejects duplicate members, lone surrogates, oversized structures, and numbers that a double
// cannot hold, because some of these cost more than their size (R25, bounded outsiders).
func Canonicalize(body []byte) ([]byte, error) {
	if !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) {
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

func checkLimits(body []byte) error {
	if !json.Valid(body) {
		return json.Unmarshal(body, new(json.RawMessage)) // returns the reason
	}
	values := 0
	for i := 0; i < len(body); i++ { // json.Decoder.Token would allocate each token of each replay
		switch body[i] {
		case '"':
			values++
			for i++; body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		case '{', '[', 't', 'f', 'n': // each of true, false and null has one of these letters
			values++
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			values++
			number := body[i:]
			number = number[:len(number)-len(bytes.TrimLeft(number, "+-.0123456789eE"))]
			if err := checkNumber(string(number)); err != nil {
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

func checkNumber(number string) error {
	if len(number) > maxNumberLength {
		return fmt.Errorf("is longer than %d bytes", maxNumberLength)
	}
	double, _ := strconv.ParseFloat(strings.TrimPrefix(number, "-"), 64) // beyond its range: 0 or infinity
	digits := significantDigits(number)
	switch {
	case digits == "":
		return nil
	case double < minNumber:
		return errors.New("is closer to 0 than 1e-30")
	case double > maxInteger:
		return errors.New("is beyond 2^53 − 1")
	case len(digits) > maxDigits:
		return errors.New("has more than 17 significant digits")
	}
	for _, precision := range []int{len(digits) - 1, -1} { // the shortest form may round a tie (2^-24) the other way
		if significantDigits(strconv.FormatFloat(double, 'e', precision, 64)) == digits {
			return nil // every double passes as a JSON serialiser writes it
		}
	}
	return errors.New("has digits that a double does not keep")
}

func significantDigits(number string) string {
	mantissa, _, _ := strings.Cut(strings.ToLower(number), "e")
	return strings.Trim(strings.Replace(mantissa, ".", "", 1), "-0")
}

// fingerprint identifies a request (R3, canonical fingerprint), after a byte that is the version of this form. There is
// one version, and it never changes, because the retries of stored keys would be rejected: their orders may be charged.
// Method and path contain no zero byte, which separates the parts.
func fingerprint(req *Request) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", req.Method, req.Path, req.Params))
	return append([]byte{1}, sum[:]...)
}
