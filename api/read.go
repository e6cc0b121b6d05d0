package api

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
)

const readTimeout = 5 * time.Second // of a GET's queries

type readFunc func(r *http.Request) (json []byte, err error)

// read sends the response without a permit, because a client may be slow.
func (h *handlers) read(next readFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		var body []byte
		err := h.Limiter.Do(r.Context(), accountID(r.Context()), func(ctx context.Context) (err error) {
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

func get[T any](read func(ctx context.Context, accountID, id uuid.UUID) (T, error)) readFunc {
	return func(r *http.Request) ([]byte, error) {
		return encode(read(r.Context(), accountID(r.Context()), pathID(r, "id")))
	}
}
