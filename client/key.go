package client

import (
	"strings"

	"github.com/google/uuid"
)

// Key identifies one purchase or refund: 16 to 255 visible ASCII characters, of which
// the first one is not a quote.
type Key string

// NewKey returns a random key. Store it with the request before the first send.
func NewKey() Key { return Key(uuid.NewString()) }

// validate rejects a leading quote, too: the header would be read as a String of RFC 9651.
func (k Key) validate() error {
	invisible := func(c rune) bool { return c <= ' ' || c >= 0x7f }
	if len(k) < 16 || len(k) > 255 || strings.ContainsFunc(string(k), invisible) || k[0] == '"' {
		return ErrInvalidKey
	}
	return nil
}
