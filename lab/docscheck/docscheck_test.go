package docscheck_test

import (
	"cmp"
	"flag"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/lab/docscheck"
)

var fetch = flag.Bool("fetch", false, "request every external link")

// DOCSCHECK_ROOT is a clone to check instead, as make own-check does.
var root = os.DirFS(cmp.Or(os.Getenv("DOCSCHECK_ROOT"), "../.."))

var pages = sync.OnceValues(func() ([]docscheck.Page, error) { return docscheck.Pages(root) })

func allPages(t *testing.T) []docscheck.Page {
	t.Helper()
	all, err := pages()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	return all
}

// want reports a failure without ending the test, so that one run reports all.
func want(t *testing.T, ok bool, format string, arguments ...any) {
	t.Helper()
	if !ok {
		t.Errorf(format, arguments...)
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	anchors := map[string]map[string]bool{}
	for _, page := range allPages(t) {
		anchors[page.Path] = page.Anchors()
	}
	for _, page := range allPages(t) {
		for _, link := range page.Links() {
			target, err := url.Parse(link)
			require.NoError(t, err, page.Path)
			if target.Host != "" || target.Scheme != "" {
				local := target.Hostname() == "localhost"
				want(t, local && target.Scheme == "http" || target.Scheme == "https", "%s: %s is not https", page.Path, link)
				continue
			}
			file := page.Path
			if target.Path != "" {
				file = path.Join(path.Dir(page.Path), target.Path)
				_, err := fs.Stat(root, file)
				want(t, err == nil, "%s: %s has no target", page.Path, link)
			}
			if target.Fragment != "" {
				want(t, anchors[file][target.Fragment], "%s: %s: the heading does not exist", page.Path, link)
			}
		}
	}
}

func TestLinks_outside(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	client := http.Client{Timeout: 30 * time.Second}
	for _, page := range allPages(t) {
		for _, link := range page.Links() {
			if !*fetch || !strings.HasPrefix(link, "https://") || seen[link] {
				continue
			}
			seen[link] = true
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link, nil)
			require.NoError(t, err)
			response, err := client.Do(request)
			if err != nil {
				t.Errorf("%s: %v", page.Path, err)
				continue
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			if response.StatusCode >= http.StatusBadRequest {
				t.Errorf("%s: %s: %s", page.Path, link, response.Status)
			}
		}
	}
}

var (
	variable = regexp.MustCompile(`\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b`)
	testName = regexp.MustCompile(`^(?:Test|Benchmark|Fuzz|Example)[A-Z_]\w*$`)
	goFile   = regexp.MustCompile(`^[\w-]+\.(?:go|sql|yaml|ini|sh)$`)
	filePath = regexp.MustCompile(`^\.{0,2}/?[\w.-]+(?:/[\w.-]+)*/?$`)
)

// sources are the files that pages may name.
type sources struct {
	files  map[string]bool // by path
	bases  map[string]bool // by name
	folder map[string]bool // top-level
	text   string          // of all files except pages
}

var repository = sync.OnceValues(func() (sources, error) {
	s := sources{files: map[string]bool{}, bases: map[string]bool{}, folder: map[string]bool{}}
	var text strings.Builder
	err := docscheck.Walk(root, func(file string, content []byte) error {
		s.files[file], s.bases[path.Base(file)] = true, true
		if folder, _, below := strings.Cut(file, "/"); below {
			s.folder[folder] = true
		}
		if !strings.HasSuffix(file, ".md") && !strings.HasSuffix(file, ".gz") {
			text.Write(content)
		}
		return nil
	})
	for _, file := range []string{".env.example", ".golangci.yml", ".gitignore"} {
		content, readErr := fs.ReadFile(root, file)
		if err == nil && readErr != nil {
			err = readErr
		}
		s.files[file] = true
		text.Write(content)
	}
	s.text = text.String()
	return s, err
})

func everything(t *testing.T) sources {
	t.Helper()
	s, err := repository()
	require.NoError(t, err)
	return s
}

func TestNames(t *testing.T) {
	t.Parallel()
	s := everything(t)
	for _, page := range allPages(t) {
		for _, name := range page.Spans() {
			switch {
			case testName.MatchString(name):
				want(t, strings.Contains(s.text, "func "+name+"("), "%s names the test %s, which does not exist", page.Path, name)
			case goFile.MatchString(name):
				want(t, s.bases[name], "%s names the file %s, which does not exist", page.Path, name)
			default:
				requirePath(t, s, page.Path, name)
			}
		}
		for _, text := range append(page.Spans(), commandLines(t, page)...) {
			for _, name := range variable.FindAllString(text, -1) {
				want(t, strings.Contains(s.text, name),
					"%s names the variable %s, which no file has", page.Path, name)
			}
		}
	}
}

// requirePath checks a word that begins with a top-level folder.
func requirePath(t *testing.T, s sources, where, word string) {
	t.Helper()
	word = strings.TrimPrefix(word, "./")
	first, _, below := strings.Cut(word, "/")
	if !below || !s.folder[first] || !filePath.MatchString(word) {
		return
	}
	_, err := fs.Stat(root, path.Clean(word))
	want(t, err == nil, "%s names %s, which does not exist", where, word)
}

func commandLines(t *testing.T, page docscheck.Page) []string {
	t.Helper()
	var lines []string
	for _, command := range commandsOf(t, page) {
		lines = append(lines, command.Text)
	}
	return lines
}

func commandsOf(t *testing.T, page docscheck.Page) []docscheck.Command {
	t.Helper()
	commands, err := page.Commands()
	require.NoError(t, err)
	return commands
}

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
