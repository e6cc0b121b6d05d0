package api

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"regexp"
	"slices"

	"github.com/go-chi/chi/v5"
)

//go:embed problem.html
var problemHTML string

var problemTemplate = template.Must(template.New("problem").Funcs(template.FuncMap{
	"statusText": http.StatusText, "text": pageText, "value": func(value string) template.HTML { return pageText("`" + value + "`: " + valueTexts[value]) },
}).Parse(problemHTML))

var valueTexts = map[string]string{
	retrySameKey:   "send the same request with the same key.",
	retryCorrected: "fix the reported error and send the request with the same key.",
	retryNewKey:    "this key has its final response. Another attempt is another payment and needs a new key.",
	retryNever:     "sending the request again cannot help.",
	outcomeNone:    "no request has used this key, or the request has no key.",
	outcomeUnknown: "a request with this key may be in progress or finished, and money may have moved.",
	outcomeFinal:   "the key has its final response.",
}

var backquoted = regexp.MustCompile("`([^`]*)`")

// pageText returns text as HTML. Backquotes enclose code.
func pageText(text string) template.HTML {
	return template.HTML(backquoted.ReplaceAllString(template.HTMLEscapeString(text), "<code>$1</code>")) //nolint:gosec // escaped
}

// Example is for the template.
func (t problemType) Example() (string, error) {
	var text bytes.Buffer
	document, retryAfter := t.example()
	fmt.Fprintf(&text, "HTTP/1.1 %d %s\nContent-Type: application/problem+json\n", t.Status, http.StatusText(t.Status))
	if t.header != "" {
		fmt.Fprintln(&text, t.header)
	}
	if retryAfter > 0 {
		fmt.Fprintf(&text, "Retry-After: %d\n", retryAfter)
	}
	text.WriteString("\n")
	err := json.Indent(&text, document, "", "  ")
	return text.String(), err
}

func getProblemPage(w http.ResponseWriter, r *http.Request) error {
	slug, types := chi.URLParam(r, "slug"), problemTypes()
	problems := slices.DeleteFunc(slices.Clone(types), func(t problemType) bool { return t.Slug != slug })
	if slug != "" && len(problems) == 0 {
		return errNoPage
	}
	var page bytes.Buffer
	if err := problemTemplate.Execute(&page, map[string]any{"Problems": problems, "Slug": slug, "All": types}); err != nil {
		return fmt.Errorf("render problem page: %w", err)
	}
	w.Header().Set("Content-Security-Policy", noContent+"; style-src 'unsafe-inline'; img-src 'self' data:")
	write(w, http.StatusOK, "text/html; charset=utf-8", page.Bytes())
	return nil
}
