package api

import (
	"bytes"
	"embed"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
	"go.yaml.in/yaml/v3"
)

//go:embed problems/*.md
var problemFiles embed.FS

// problemType is a file of the folder problems, which begins with a header in YAML.
type problemType struct {
	Slug    string
	Title   string
	Status  int
	Retry   string
	Or      string   // another value of retry, if there is one
	Outcome []string // the possible values; the first one is the default
	Text    []byte   // the whole file, in Markdown

	RetryAfter int `yaml:"retry_after"` // seconds; 0 without the header
}

// problemTypes returns all types, by status. NewRouter calls it too, so that a file with a wrong
// header ends the start, with its name.
var problemTypes = sync.OnceValue(func() (types []problemType) {
	files, _ := problemFiles.ReadDir("problems")
	for _, file := range files {
		content, _ := problemFiles.ReadFile(path.Join("problems", file.Name()))
		header, _, _ := bytes.Cut(bytes.TrimPrefix(content, []byte("---\n")), []byte("---\n"))
		t := problemType{Slug: strings.TrimSuffix(file.Name(), ".md"), Text: content}
		if err := yaml.Unmarshal(header, &t); err != nil || t.Title == "" || t.Status == 0 || t.Retry == "" || len(t.Outcome) == 0 {
			panic(fmt.Sprintf("api: problems/%s: a title, status, retry and outcome are required (%v)", file.Name(), err))
		}
		types = append(types, t)
	}
	slices.SortStableFunc(types, func(a, b problemType) int { return a.Status - b.Status })
	return types
})

// problemTypeOf returns nil if there is no such type.
func problemTypeOf(slug string) *problemType {
	types := problemTypes()
	if i := slices.IndexFunc(types, func(t problemType) bool { return t.Slug == slug }); i >= 0 {
		return &types[i]
	}
	return nil
}

// getProblemPage serves the text of a type, and without a slug the list of all. It is plain text,
// because browsers do not show text/markdown.
func getProblemPage(w http.ResponseWriter, r *http.Request) error {
	slug := chi.URLParam(r, "slug")
	var page bytes.Buffer
	for _, t := range problemTypes() {
		switch slug {
		case "":
			fmt.Fprintf(&page, "%d  %-15s  /problems/%s\n", t.Status, strings.TrimSuffix(t.Retry+", "+t.Or, ", "), t.Slug)
		case t.Slug:
			page.Write(bytes.ReplaceAll(t.Text, []byte(".md)"), []byte(")"))) // the links of files
		}
	}
	if page.Len() == 0 {
		return errNoPage
	}
	write(w, http.StatusOK, "text/plain; charset=utf-8", page.Bytes())
	return nil
}
