package api

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/yuin/goldmark"
)

//go:embed problem.html
var problemHTML string

var problemTemplate = template.Must(template.New("problem").Funcs(template.FuncMap{"statusText": http.StatusText}).Parse(problemHTML))

// HTML returns the text, in which links to other files become links to their pages.
func (t problemType) HTML() (template.HTML, error) {
	var page bytes.Buffer
	err := goldmark.Convert(bytes.ReplaceAll(t.Text, []byte(".md)"), []byte(")")), &page)
	return template.HTML(page.String()), err //nolint:gosec // the text is part of the program
}

// getProblemPage serves the page of a type, and without a slug the list of all.
func getProblemPage(w http.ResponseWriter, r *http.Request) error {
	slug := chi.URLParam(r, "slug")
	shown := problemTypeOf(slug)
	if slug != "" && shown == nil {
		return errNoPage
	}
	var page bytes.Buffer
	if err := problemTemplate.Execute(&page, map[string]any{"Problem": shown, "Slug": slug, "All": problemTypes()}); err != nil {
		return fmt.Errorf("render problem page: %w", err)
	}
	w.Header().Set("Content-Security-Policy", noContent+"; style-src 'unsafe-inline'; img-src 'self' data:")
	write(w, http.StatusOK, "text/html; charset=utf-8", page.Bytes())
	return nil
}
