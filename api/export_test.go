package api

import (
	"net/http"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
)

// ReadKey is readKey, for the fuzz target.
func ReadKey(header http.Header) (idempotency.Key, error) { return readKey(header) }

// ParseID is parseID, for the comparison with the contract.
func ParseID(text string) (uuid.UUID, error) { return parseID(text) }

// ProblemSlugs returns the problems that have a page.
func ProblemSlugs() []string {
	var slugs []string
	for _, t := range problemTypes() {
		slugs = append(slugs, t.slug)
	}
	return slugs
}
