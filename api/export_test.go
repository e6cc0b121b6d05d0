package api

import (
	"net/http"

	"example.com/orders-api/idempotency"
)

// ReadKey is readKey, for the fuzz target.
func ReadKey(header http.Header) (idempotency.Key, error) { return readKey(header) }

// ProblemSlugs returns the problems that have a page.
func ProblemSlugs() []string {
	var slugs []string
	for _, t := range problemTypes() {
		slugs = append(slugs, t.slug)
	}
	return slugs
}
