package client

import (
	"context"
	"net/url"
	"time"
)

// KeyStatus is what became of the request under a key.
type KeyStatus struct {
	Key           Key        `json:"key"`
	State         string     `json:"state"` // in_progress, finished or needs_review
	Operation     string     `json:"operation"`
	RecoveryPoint string     `json:"recovery_point"`
	Attempt       int        `json:"attempt"`
	CreatedAt     time.Time  `json:"created_at"`
	LastRunAt     *time.Time `json:"last_run_at"`
	ExpiresAt     *time.Time `json:"expires_at"` // of the answer, not of the key, which stays used

	// Response is nil until there is an answer. The answer itself is what the
	// same request gets.
	Response *struct {
		Status int `json:"status"`
	} `json:"response"`

	// Order is nil when the request made none.
	Order *struct {
		ID   string `json:"id"`
		Href string `json:"href"`
	} `json:"order"`
}

// GetKey reads what became of the request under a key, without sending it. A key
// that the API has not seen is a [*Problem]; that it stays unseen is certain only
// when no send can be under way any more.
func (c *Client) GetKey(ctx context.Context, key Key) (KeyStatus, error) {
	if err := key.validate(); err != nil {
		return KeyStatus{}, err
	}
	call := get("/v1/idempotency-keys/" + url.PathEscape(string(key)))
	call.waits = true
	return read[KeyStatus](ctx, c, call)
}
