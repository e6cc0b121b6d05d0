package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRemoveSections(t *testing.T) {
	text, err := removeSections("a\n\t// slim:begin\nb\n\t// slim:end\nc\n# slim:begin\nd\n# slim:end\n<!-- slim:begin -->\ne\n<!-- slim:end -->\nf\n")
	require.NoError(t, err)
	require.Equal(t, "a\nc\nf\n", text)
	for _, faulty := range []string{"# slim:begin\n", "# slim:end\n", "# slim:begin\n# slim:begin\n# slim:end\n"} {
		_, err := removeSections(faulty)
		require.Error(t, err, faulty)
	}
}

func TestRemoveLinks(t *testing.T) {
	exists := func(target string) bool { return target == "here.md" || target == "../here.go" }
	for _, test := range []struct{ name, page, want string }{
		{"existing file, anchor and address", "[a](here.md#b) [c](#d) [e](https://f.example)\n", "[a](here.md#b) [c](#d) [e](https://f.example)\n"},
		{"text stays", "See [the console](console.md#data) and [a](here.md).\n", "See the console and [a](here.md).\n"},
		{"table row", "| [`bench`](bench) | figures |\n| [a](here.md) | b |\n", "| [a](here.md) | b |\n"},
		{"list item", "- [Console](console.md): a page\n- **[a](here.md)**\n", "- **[a](here.md)**\n"},
		{"picture", "![The console](console.png)\n", "\n"},
	} {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, test.want, removeLinks(test.page, exists)) })
	}
}
