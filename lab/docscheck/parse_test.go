package docscheck_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/lab/docscheck"
)

func parsed(t *testing.T, text string) (docscheck.Page, error) {
	t.Helper()
	pages, err := docscheck.Pages(fstest.MapFS{"page.md": {Data: []byte(text)}})
	require.Len(t, pages, 1)
	return pages[0], err
}

func TestPages(t *testing.T) {
	t.Parallel()
	page, err := parsed(t, "# A `tour` of it\n\n1. First:\n\n   ```console\n   $ orders a \\\n       b # why\n   printed\n   $ A=1 curl -d '{\n   }' x | orders c\n   ```\n\n"+
		"[one](a.md#b), ![two](b.png), <https://example.com/x>, `[no](link)`\n## A tour of it\n<a id=\"stable\"></a>\n# What's _new_, in [this](x)?\n")
	require.NoError(t, err)
	require.Equal(t, []string{"a.md#b", "b.png", "x", "https://example.com/x"}, page.Links())
	require.Equal(t, map[string]bool{"a-tour-of-it": true, "a-tour-of-it-1": true, "whats-_new_-in-this": true, "stable": true}, page.Anchors())
	require.Equal(t, []string{"tour", "[no](link)"}, page.Spans())
	require.Len(t, page.Blocks, 1)
	commands, err := page.Blocks[0].Commands()
	require.NoError(t, err)
	require.Equal(t, []docscheck.Command{
		{
			At:    "page.md:6",
			Text:  "orders a \\\n    b # why",
			Parts: []docscheck.Simple{{Words: []string{"orders", "a", "b"}}},
			Shown: []string{"printed"},
		},
		{
			At:   "page.md:9",
			Text: "A=1 curl -d '{\n}' x | orders c",
			Parts: []docscheck.Simple{
				{Assignments: []string{"A=1"}, Words: []string{"curl", "-d", "{\n}", "x"}},
				{Words: []string{"orders", "c"}},
			},
		},
	}, commands)
}

func TestPages_invalid(t *testing.T) {
	t.Parallel()
	_, err := parsed(t, "a\n```\nb\n")
	require.EqualError(t, err, "page.md:3: the block is never closed")
	for text, want := range map[string]string{
		"```console\nno prompt\n```\n":    "page.md:2: this console begins without a command",
		"```sh\nb 'goes on\n```\n":        "page.md:2: the command is incomplete at the end of its block",
		"```console\n$ a \\\n```\n":       "page.md:2: the command is incomplete at the end of its block",
		"\n```console\n$ \"x\n$ y\n```\n": "page.md:3: the command is incomplete at the end of its block",
	} {
		page, err := parsed(t, text)
		require.NoError(t, err)
		_, err = page.Blocks[0].Commands()
		require.EqualError(t, err, want)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	const output = "HTTP/1.1 201 Created\r\nDate: Sat, 21 Nov 2026 10:00:00 GMT\r\nX: y\r\n\r\n" +
		`{"id":"0f1e2d3c-0000-8000-8000-000000000001","status":"paid","amount":2500}`
	tests := map[string]struct {
		shown []string
		wrong bool
	}{
		"every line": {shown: []string{
			"HTTP/1.1 201 Created", "Date: Sun, 22 Nov 2026 11:00:00 GMT", "X: y", "",
			`{"id":"aaaaaaaa-bbbb-8ccc-8ddd-eeeeeeeeeeee","status":"paid","amount":2500}`,
		}},
		"some lines":         {shown: []string{"HTTP/1.1 201 Created", "…", `{"id":"…","status":"paid",…}`}},
		"another status":     {shown: []string{"HTTP/1.1 200 OK", "…"}, wrong: true},
		"another member":     {shown: []string{"…", `{"id":"…","status":"pending",…}`}, wrong: true},
		"a missing line":     {shown: []string{"HTTP/1.1 201 Created", "X: y", "…"}, wrong: true},
		"a missing end":      {shown: []string{"HTTP/1.1 201 Created"}, wrong: true},
		"an invalid id":      {shown: []string{"…", `{"id":"1","status":"paid","amount":2500}`}, wrong: true},
		"regular expression": {shown: []string{"…", "X: .", "…"}, wrong: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := docscheck.Compare(test.shown, output)
			require.Equal(t, test.wrong, err != nil, "%v", err)
		})
	}
}
