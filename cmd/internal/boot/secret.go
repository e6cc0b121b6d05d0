package boot

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a value that only a conversion to string shows.
type Secret string

const redacted = "[redacted]"

// Format hides the value from every verb. With a String method alone, a wrong verb such
// as %d would show it.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// String hides the value from callers that do not use fmt.
func (Secret) String() string { return redacted }

// LogValue hides the value from slog.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the value from encoding/json.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
