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
