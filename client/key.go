package client

import (
	"strings"

	"github.com/google/uuid"
)

// Key identifies one purchase or refund: 16 to 255 visible ASCII characters.
type Key string

// NewKey returns a random key. Store it with the request before the first send.
func NewKey() Key { return Key(uuid.NewString()) }

func (k Key) validate() error {
	visible := func(c rune) bool { return c > ' ' && c < 0x7f }
	if len(k) < 16 || len(k) > 255 || strings.ContainsFunc(string(k), func(c rune) bool { return !visible(c) }) {
		return ErrInvalidKey
	}
	return nil
}

// header returns the value of the Idempotency-Key header. A key that begins with a
// quote is sent as a String of RFC 9651.
func (k Key) header() string {
	if !strings.HasPrefix(string(k), `"`) {
		return string(k)
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(string(k)) + `"`
}
