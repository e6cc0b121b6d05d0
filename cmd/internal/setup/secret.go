package setup

import (
	"fmt"
	"io"
)

// Secret is a value that only a conversion to string shows.
type Secret string

const redacted = "[redacted]"

// Format hides the value also from verbs that do not use String.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// String hides the value from callers that do not use fmt.
func (Secret) String() string { return redacted }

// MarshalText hides the value from encoding/json and slog.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
