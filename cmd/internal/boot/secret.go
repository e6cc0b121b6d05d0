package boot

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a value that no log, error or verb shows. Converting it to a string
// is the only way to see it.
type Secret string

const redacted = "[redacted]"

// Format hides the value from every verb of fmt. With a String method alone a
// wrong one such as %d would show it.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// String hides the value from those who do not go through fmt.
func (Secret) String() string { return redacted }

// LogValue hides the value from slog.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the value from encoding/json and others.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
