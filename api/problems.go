package api

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

//go:embed problem.html
var problemHTML string

// problemTemplate is the page that a problem's type names.
var problemTemplate = template.Must(template.New("problem").Parse(problemHTML))

// problemPage is what the template shows.
type problemPage struct {
	Slug       string
	Status     int
	StatusText string
	Title      string
	Help       []span
	Effect     []span
	Next       []span
	Retry      string
	Stored     bool
	Example    string
	See        []string
	All        []problemPage // slug and status only
}

// span is a piece of text, or of code, as `x` in the explanations.
type span struct {
	Text string
	Code bool
}

func spans(text string) []span {
	var all []span
	for i, piece := range strings.Split(text, "`") {
		all = append(all, span{Text: piece, Code: i%2 == 1})
	}
	return all
}

// retryAdvice spells out the retry member.
func retryAdvice(retry string) string {
	switch retry {
	case retrySameKey:
		return "Yes: the same request with the same key (same-key)."
	case retryNewKey:
		return "Not as it is. Another try is another request (new-key)."
	default:
		return "No, it will not help (never)."
	}
}

// example is the answer as it is on the wire, its document indented.
func (t problemType) example(e explanation) (string, error) {
	var text bytes.Buffer
	document, retryAfter := e.answer()
	fmt.Fprintf(&text, "HTTP/1.1 %d %s\nContent-Type: application/problem+json\n", t.status, http.StatusText(t.status))
	if e.header != "" {
		fmt.Fprintln(&text, e.header)
	}
	if retryAfter > 0 {
		fmt.Fprintf(&text, "Retry-After: %d\n", retryAfter)
	}
	text.WriteString("\n")
	err := json.Indent(&text, document, "", "  ")
	return text.String(), err
}

// byStatus puts problems into the order in which people look for them.
func byStatus(types []problemType) []problemType {
	slices.SortStableFunc(types, func(a, b problemType) int { return a.status - b.status })
	return types
}

// getProblemPage is GET /problems/{slug}.
func getProblemPage(w http.ResponseWriter, r *http.Request) error {
	slug := chi.URLParam(r, "slug")
	types := byStatus(problemTypes())
	i := slices.IndexFunc(types, func(t problemType) bool { return t.slug == slug })
	if i < 0 {
		return errNotFound
	}
	t, e := types[i], explanations()[slug]
	example, err := t.example(e)
	if err != nil {
		return fmt.Errorf("indent example: %w", err)
	}
	shown := problemPage{
		Slug: t.slug, Status: t.status, StatusText: http.StatusText(t.status), Title: t.title,
		Help: spans(t.help), Effect: spans(e.effect), Next: spans(e.next), Retry: retryAdvice(t.retry),
		Stored: e.stored != "", Example: example, See: e.see,
	}
	for _, other := range types {
		shown.All = append(shown.All, problemPage{Slug: other.slug, Status: other.status})
	}
	var page bytes.Buffer
	if err := problemTemplate.Execute(&page, shown); err != nil {
		return fmt.Errorf("render problem page: %w", err)
	}
	w.Header().Set("Content-Security-Policy", noContent+"; style-src 'unsafe-inline'; img-src data:")
	write(w, http.StatusOK, "text/html; charset=utf-8", page.Bytes())
	return nil
}
