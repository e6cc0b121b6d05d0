package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"
)

// readFunc reads what a GET asks for, and returns it as JSON.
type readFunc func(r *http.Request) ([]byte, error)

// read responds with the result of next, which has a permit and readTimeout. The response
// is sent without a permit, because a client may be slow.
func (a accountAPI) read(next readFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		var body []byte
		err := a.limiter.Do(r.Context(), accountID(r.Context()), func(ctx context.Context) (err error) {
			ctx, cancel := context.WithTimeout(ctx, readTimeout)
			defer cancel()
			body, err = next(r.WithContext(ctx))
			return err
		})
		if err != nil {
			return err
		}
		write(w, http.StatusOK, "application/json", body)
		return nil
	}
}

// get reads the resource with the id in the path.
func get[T any](read func(ctx context.Context, accountID, id uuid.UUID) (T, error)) readFunc {
	return func(r *http.Request) ([]byte, error) {
		return encode(read(r.Context(), accountID(r.Context()), pathID(r, "id")))
	}
}
