package api

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"
)

// getProblemPage serves the text of a type, and without a slug the list of all. It is plain text,
// because browsers do not show text/markdown.
func getProblemPage(w http.ResponseWriter, r *http.Request) error {
	slug := chi.URLParam(r, "slug")
	var page bytes.Buffer
	for _, t := range problemTypes() {
		switch slug {
		case "":
			fmt.Fprintf(&page, "%d  %-9s  /problems/%s\n", t.Status, t.Retry, t.Slug)
		case t.Slug:
			page.Write(t.Text)
		}
	}
	if page.Len() == 0 {
		return errNoPage
	}
	write(w, http.StatusOK, "text/plain; charset=utf-8", page.Bytes())
	return nil
}
