package client

import (
	"strings"

	"github.com/google/uuid"
)

// Key names one intent for ever: 16 to 255 visible ASCII characters.
type Key string

// NewKey returns a key that nobody has used: a random UUID. Store it beside the
// purchase before the first send. After a crash it is the only way to ask what
// became of the request; a second key would be a second purchase.
func NewKey() Key { return Key(uuid.NewString()) }

// validate returns [ErrInvalidKey] for what the API does not take.
func (k Key) validate() error {
	visible := func(c rune) bool { return c > ' ' && c < 0x7f }
	if len(k) < 16 || len(k) > 255 || strings.ContainsFunc(string(k), func(c rune) bool { return !visible(c) }) {
		return ErrInvalidKey
	}
	return nil
}

// header is the key as the Idempotency-Key header: as it is, but for one that
// begins with a quote and would be read as a String of RFC 9651.
func (k Key) header() string {
	if !strings.HasPrefix(string(k), `"`) {
		return string(k)
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(string(k)) + `"`
}
