package client

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Key identifies one purchase or refund: 16 to 255 visible ASCII characters, of which
// the first one is not a quote.
type Key string

// NewKey returns a random key. Store it with the request before the first send.
func NewKey() Key { return Key(uuid.NewString()) }

// validate rejects a leading quote, too: the header would be read as a String of RFC 9651.
func (k Key) validate() error {
	invisible := func(c rune) bool { return c <= ' ' || c >= 0x7f }
	if len(k) < 16 || len(k) > 255 || strings.ContainsFunc(string(k), invisible) || k[0] == '"' {
		return ErrInvalidKey
	}
	return nil
}

// KeyStatus is the state of a key.
type KeyStatus struct {
	Key           Key        `json:"key"`
	State         string     `json:"state"` // in_progress, waiting, requires_action, finished, needs_review or expired
	Operation     string     `json:"operation"`
	RecoveryPoint string     `json:"recovery_point"` // empty for an expired key, like all that follows except CreatedAt and the links
	Attempt       int        `json:"attempt"`
	CreatedAt     time.Time  `json:"created_at"`
	LastRunAt     *time.Time `json:"last_run_at"`
	ExpiresAt     *time.Time `json:"expires_at"` // of the response; the key stays used

	// Response is nil while no response is stored. It omits the body, which the same
	// request returns.
	Response *KeyResponse `json:"response"`

	Order  *Resource `json:"order"`  // the order that the request names or creates, or nil
	Refund *Resource `json:"refund"` // the refund that the request creates, or nil

	Action *Action `json:"action"` // nil unless the state is requires_action
}

// KeyResponse describes the stored response of a key.
type KeyResponse struct {
	Status   int    `json:"status"`
	Type     string `json:"type"`     // of a problem, such as /problems/payment-declined; otherwise empty
	Location string `json:"location"` // of what was created; otherwise empty
}

// Resource links to an object of the API.
type Resource struct {
	ID   string `json:"id"`
	Href string `json:"href"` // its path
}

// GetKey reads the state of a key, "expired" if its response is no longer stored. A key
// that the API has not received is a [*Problem], but a request in flight may use it
// later.
func (c *Client) GetKey(ctx context.Context, key Key) (KeyStatus, error) {
	if err := key.validate(); err != nil {
		return KeyStatus{}, err
	}
	return read[KeyStatus](ctx, c, "/v1/idempotency-keys/"+url.PathEscape(string(key)))
}
