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

// problemTemplate is the page to which a problem's type refers.
var problemTemplate = template.Must(template.New("problem").Parse(problemHTML))

type problemPage struct {
	Slug       string
	Status     int
	StatusText string
	Title      string
	Help       []textRun
	Effect     []textRun
	Next       []textRun
	Retry      []textRun
	Outcomes   [][]textRun
	Pending    []textRun
	Stored     bool
	Example    string
	See        []string
	All        []problemPage // slug and status only
}

// textRun is text, or code, which backquotes enclose.
type textRun struct {
	Text string
	Code bool
}

func textRuns(text string) []textRun {
	var all []textRun
	for i, piece := range strings.Split(text, "`") {
		all = append(all, textRun{Text: piece, Code: i%2 == 1})
	}
	return all
}

func retryAdvice(retry string) string {
	switch retry {
	case retrySameKey:
		return "`same-key`: send the same request with the same key."
	case retryCorrected:
		return "`corrected`: fix the reported error and send the request with the same key."
	case retryNewKey:
		return "`new-key`: this key has its final response. Another attempt is another payment and needs a new key."
	default:
		return "`never`: sending the request again cannot help."
	}
}

func outcomeText(outcome string) string {
	switch outcome {
	case outcomeNone:
		return "`none`: no request has used this key, or the request has no key."
	case outcomeUnknown:
		return "`unknown`: a request with this key may be in progress or finished, and money may have moved."
	default:
		return "`final`: the key has its final response."
	}
}

// renderExample returns the example as an HTTP response with an indented body.
func (t problemType) renderExample(e problemDoc) (string, error) {
	var text bytes.Buffer
	document, retryAfter := e.example()
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

func byStatus(types []problemType) []problemType {
	slices.SortStableFunc(types, func(a, b problemType) int { return a.status - b.status })
	return types
}

func getProblemPage(w http.ResponseWriter, r *http.Request) error {
	slug := chi.URLParam(r, "slug")
	types := byStatus(problemTypes())
	i := slices.IndexFunc(types, func(t problemType) bool { return t.slug == slug })
	if i < 0 {
		return errNoPage
	}
	t, e := types[i], problemDocs()[slug]
	example, err := t.renderExample(e)
	if err != nil {
		return fmt.Errorf("indent example: %w", err)
	}
	shown := problemPage{
		Slug: t.slug, Status: t.status, StatusText: http.StatusText(t.status), Title: t.title,
		Help: textRuns(t.help), Effect: textRuns(e.effect), Next: textRuns(e.next), Retry: textRuns(retryAdvice(t.retry)),
		Stored: e.stored != "", Example: example, See: e.see,
	}
	if e.pending != "" {
		shown.Pending = textRuns(retryAdvice(e.pending))
	}
	for _, outcome := range t.outcomes {
		shown.Outcomes = append(shown.Outcomes, textRuns(outcomeText(outcome)))
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
