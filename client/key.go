package client

import (
	"context"
	"encoding/base64"
	"log/slog"
	"net/url"
	"regexp"
	"time"

	"github.com/google/uuid"
)

// Key identifies one purchase or refund. It has 16 to 255 visible ASCII characters. The first one
// is not a quote, because a header that begins with a quote is a String (RFC 9651).
type Key string

// NewKey returns a random key. Store it before the first send.
func NewKey() Key { return Key(uuid.NewString()) }

var keyPattern = regexp.MustCompile(`^[!#-~][!-~]{15,254}$`)

func (k Key) validate() error {
	if !keyPattern.MatchString(string(k)) {
		return ErrInvalidKey
	}
	return nil
}

// KeyStatus is the state of a key.
type KeyStatus struct {
	Key           Key        `json:"key"`
	State         string     `json:"state"` // in_progress, waiting, requires_action, finished or expired
	Operation     string     `json:"operation"`
	RecoveryPoint Nullable   `json:"recovery_point"` // empty for an expired key
	Runs          *int       `json:"runs"`           // nil for an expired key
	CreatedAt     time.Time  `json:"created_at"`
	UpdatedAt     *time.Time `json:"updated_at"`
	ExpiresAt     *time.Time `json:"expires_at"` // when the response is deleted; the key stays used

	Response *KeyResponse `json:"response"` // nil while no response is stored
	Order    *Resource    `json:"order"`    // the order that the request names or creates
	Refund   *Resource    `json:"refund"`   // the refund that the request creates

	Resource *Resource `json:"resource,omitempty"` // what a request of another operation creates
	Action   *Action   `json:"action,omitempty"`   // nil unless the state is requires_action
}

// LogValue implements [slog.LogValuer], so that no handler logs the action's client secret.
func (s KeyStatus) LogValue() slog.Value {
	type visible KeyStatus
	if s.Action != nil {
		s.Action = &Action{Type: s.Action.Type, PaymentIntentID: s.Action.PaymentIntentID}
	}
	return slog.AnyValue(visible(s))
}

// KeyResponse describes the stored response of a key.
type KeyResponse struct {
	Status   int      `json:"status"`
	Type     Nullable `json:"type"`     // the type of a problem; otherwise empty
	Location Nullable `json:"location"` // the path of the created resource; otherwise empty
}

// Resource links to an object of the API.
type Resource struct {
	ID   string `json:"id"`
	Href string `json:"href"` // a path
}

// GetKey reads the state of a key. For an unknown key it returns a [*Problem] with the status 404, which
// proves nothing: a request may be in flight, or a failover may have lost the key after the charge. So send
// the request with this key, whatever Retry of the problem is, because that is about this read.
func (c *Client) GetKey(ctx context.Context, key Key, prefer ...Preference) (KeyStatus, error) {
	if err := key.validate(); err != nil {
		return KeyStatus{}, err
	}
	segment := url.PathEscape(string(key))
	if segment != string(key) || key[0] == '~' { // Some proxies undo escapes, so the API also accepts this form.
		segment = "~" + base64.RawURLEncoding.EncodeToString([]byte(key))
	}
	return read[KeyStatus](ctx, c, "/v1/idempotency-keys/"+segment, prefer...)
}
