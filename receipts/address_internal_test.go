package receipts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The schema of openapi.yaml states the same rule, see FuzzOrderRequest in package api.
func TestValidAddress(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("d", 63)
	longDomain := strings.Repeat(label+".", 2) + strings.Repeat("d", 61)
	for address, want := range map[string]bool{
		"ada@example.com":                              true,
		"a@b.c":                                        true,
		"ada.lovelace+tea@mail.example.com":            true,
		"!#$%&'*+/=?^_`{|}~-@example.com":              true,
		"ada@1.example-2.com":                          true,
		"ada@xn--exmple-cua.com":                       true,
		strings.Repeat("a", 64) + "@example.com":       true,
		"ada@" + label + ".com":                        true,
		strings.Repeat("a", 64) + "@" + longDomain:     true, // 254
		strings.Repeat("a", 64) + "@" + longDomain[1:]: true,

		"":                                       false,
		"ada":                                    false,
		"@example.com":                           false,
		"ada@":                                   false,
		"ada@localhost":                          false,
		"ada@-example.com":                       false,
		"ada@example-.com":                       false,
		"ada@example.-com":                       false,
		"ada@example.com-":                       false,
		"ada@exa_mple.com":                       false,
		"ada@example..com":                       false,
		"ada@.example.com":                       false,
		"ada@example.com.":                       false,
		"ada@@example.com":                       false,
		"a@da@example.com":                       false,
		".ada@example.com":                       false,
		"ada.@example.com":                       false,
		"a..da@example.com":                      false,
		`"a b"@example.com`:                      false,
		`"ada"@example.com`:                      false,
		"ada@[127.0.0.1]":                        false,
		"ada@exämple.com":                        false,
		"ädä@example.com":                        false,
		" ada@example.com":                       false,
		"ada@example.com\n":                      false,
		"ada@exam ple.com":                       false,
		"ada\x00@example.co":                     false,
		strings.Repeat("a", 65) + "@example.com": false,
		"ada@" + label + "d.com":                 false,
		strings.Repeat("a", 65) + "@" + longDomain: false,
		"a@" + longDomain + "." + longDomain:       false,
		"Ada <ada@example.com>":                    false,
		"ada@example.com, eve@example.com":         false,
		"ada@example.com,eve@example.com":          false,
		"ada@example.com\r\nBcc: eve@example.com":  false,
		"\"ada\r\n\"@example.com":                  false,
		`"ada>"@example.com`:                       false,
		"ada@example.com (Ada)":                    false,
		"all: ada@example.com;":                    false,
		"ada\u2028@example.com":                    false,
		"ada\u0085@example.com":                    false,
		"ada\xff@example.com":                      false,
	} {
		require.Equal(t, want, ValidAddress(address), "%q", address)
	}
}
