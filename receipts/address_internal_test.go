package receipts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The schema of openapi.yaml states the same rule.
func TestValidAddress(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("d", 63)
	longDomain := strings.Repeat(label+".", 2) + strings.Repeat("d", 61)
	for _, address := range []string{
		"ada@example.com",
		"ada.lovelace+tea@mail.example.com",
		"!#$%&'*+/=?^_`{|}~-@example.com",
		strings.Repeat("a", 64) + "@example.com",
		strings.Repeat("a", 64) + "@" + longDomain, // 254
		strings.Repeat("a", 64) + "@" + longDomain[1:],
	} {
		require.True(t, ValidAddress(address), "%q", address)
	}
	for _, address := range []string{
		"",
		"ada",
		"ada@",
		"ada@localhost",
		"ada@example..com",
		"ada@example.com.",
		".ada@example.com",
		"ada.@example.com",
		"a..da@example.com",
		`"a b"@example.com`,
		"ada@[127.0.0.1]",
		"ada@exämple.com",
		"ada@example.com\n",
		"ada\x00@example.co",
		strings.Repeat("a", 65) + "@example.com",
		"ada@" + label + "d.com",
		"a@" + longDomain + "." + longDomain,
		"Ada <ada@example.com>",
		"ada@example.com, eve@example.com",
		"ada@example.com\r\nBcc: eve@example.com",
		"ada\u2028@example.com",
		"ada\xff@example.com",
	} {
		require.False(t, ValidAddress(address), "%q", address)
	}
}
