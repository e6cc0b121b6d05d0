package idempotency

import (
	"crypto/sha256"

	"github.com/google/uuid"
)

// Key is what a client calls its request: 16 to 255 visible ASCII characters.
// Get one from [ParseKey].
type Key string

// Bounds of a key's length, in bytes. Sixteen leaves room for a random value
// that does not repeat; 255 is what Stripe takes.
const (
	minKeyLength = 16
	maxKeyLength = 255
)

// ParseKey returns s as a Key, or [ErrInvalidKey].
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

// KeyID is the id of a key's row. It is derived (R5), so the same request finds
// the same id in every database, also in one that lost the row in a failover:
// whatever is sent to others under this id is recognised there.
func KeyID(accountID uuid.UUID, key Key) uuid.UUID {
	return DeriveID("idempotency_key", accountID, key)
}

// DeriveID is the id of the thing called word that the key's request makes, an
// order for instance: a UUIDv8 (RFC 9562) from SHA-256 over word, account and
// key. The word must not contain a zero byte.
func DeriveID(word string, accountID uuid.UUID, key Key) uuid.UUID {
	// The zero byte and the account's fixed length keep the parts apart.
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
