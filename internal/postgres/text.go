package postgres

import "strings"

// Text returns s as a text column can store it: NUL and invalid UTF-8 become "?", and
// it has at most limit characters.
func Text(s string, limit int) string {
	characters := []rune(strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "?"), "?"))
	return string(characters[:min(len(characters), limit)])
}
