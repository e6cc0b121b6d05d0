package operations

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
)

// KeyStatus is the status of a key.
type KeyStatus struct {
	idempotency.Status
	Expired  bool            // reaped: only operation, path and times are known
	Response *StoredResponse // nil if none is stored
	Links    Links
}

// StoredResponse describes a stored response.
type StoredResponse struct {
	Status   int     `json:"status"`
	Type     *string `json:"type"` // of a problem
	Location *string `json:"location"`
}

// StateExpired is the state of a key that was reaped.
const StateExpired = "expired"

// State is [idempotency.Status.State] or [StateExpired].
func (k KeyStatus) State() string {
	if k.Expired {
		return StateExpired
	}
	return k.Status.State()
}

// Settled reports whether no run is expected.
func (k KeyStatus) Settled() bool {
	unsettled := []string{idempotency.StateInProgress, idempotency.StateWaiting, idempotency.StateActionRequired}
	return !slices.Contains(unsettled, k.State())
}

// KeyStatus returns the status of a key, or [idempotency.ErrNotFound] if it was never used.
func (s *Service) KeyStatus(ctx context.Context, accountID uuid.UUID, key idempotency.Key) (KeyStatus, error) {
	status, response, err := s.engine.Lookup(ctx, accountID, key)
	expired, reaped := errors.AsType[*idempotency.KeyExpiredError](err)
	if reaped {
		status, err = expired.Key, nil
	}
	if err != nil {
		return KeyStatus{}, err
	}
	return KeyStatus{Status: status, Expired: reaped, Response: describe(response), Links: s.Links(status)}, nil
}

func describe(response idempotency.Response) *StoredResponse {
	if response.Status == 0 {
		return nil
	}
	stored := &StoredResponse{Status: response.Status}
	if location, ok := response.Headers["Location"]; ok {
		stored.Location = &location
	}
	var p Problem
	if response.Headers["Content-Type"] == problemMediaType && json.Unmarshal(response.Body, &p) == nil {
		stored.Type = &p.Type
	}
	return stored
}
