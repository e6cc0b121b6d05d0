package postgres

import "strings"

// Text returns s as a text column can store it: NUL and invalid UTF-8 replaced by
// "?", and at most limit characters long.
func Text(s string, limit int) string {
	characters := []rune(strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "?"), "?"))
	return string(characters[:min(len(characters), limit)])
}
