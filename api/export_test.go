package api

import (
	"net/http"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
)

func ReadKey(header http.Header) (idempotency.Key, error) { return readKey(header) }

func ParseID(text string) (uuid.UUID, error) { return parseID(text) }

func ProblemSlugs() []string {
	var slugs []string
	for _, t := range problemTypes() {
		slugs = append(slugs, t.Slug)
	}
	return slugs
}
