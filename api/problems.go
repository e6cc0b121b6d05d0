package api

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"slices"

	"github.com/go-chi/chi/v5"
)

// problemTemplate is the page that a problem's type names.
var problemTemplate = template.Must(template.New("problem").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:3em auto;padding:0 1em}code{background:#8882;padding:.1em .3em;border-radius:3px}</style>
<h1>{{.Title}}</h1>
<p><code>{{.Status}}</code> <code>{{.Slug}}</code></p>
<p>{{.Help}}</p>
<p>Retry: {{.Retry}}</p>
<p><a href="/docs">The whole contract</a></p>
</html>
`))

// retryAdvice spells out the retry member.
func retryAdvice(retry string) string {
	switch retry {
	case retrySameKey:
		return "yes, the same request with the same key (same-key)."
	case retryNewKey:
		return "not as it is. A corrected request is a new one, with a new key (new-key)."
	default:
		return "no, it will not help (never)."
	}
}

// problemPage is GET /problems/{slug}.
func problemPage(w http.ResponseWriter, r *http.Request) error {
	slug := chi.URLParam(r, "slug")
	types := problemTypes()
	i := slices.IndexFunc(types, func(t problemType) bool { return t.slug == slug })
	if i < 0 {
		return errNotFound
	}
	t := types[i]
	var page bytes.Buffer
	err := problemTemplate.Execute(&page, map[string]any{
		"Title": t.title, "Status": t.status, "Slug": t.slug, "Help": t.help, "Retry": retryAdvice(t.retry),
	})
	if err != nil {
		return fmt.Errorf("render problem page: %w", err)
	}
	w.Header().Set("Content-Security-Policy", noContent+"; style-src 'unsafe-inline'")
	write(w, http.StatusOK, "text/html; charset=utf-8", page.Bytes())
	return nil
}
