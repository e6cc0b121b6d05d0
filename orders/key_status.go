package orders

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
)

// KeyStatus is the status of a key and its resources.
type KeyStatus struct {
	idempotency.Status
	Expired  bool            // reaped: only operation, path and times are known
	Response *StoredResponse // nil if none is stored
	OrderID  uuid.UUID       // uuid.Nil if there is none
	RefundID uuid.UUID       // uuid.Nil if there is none
	Resource *Resource       // created by a registered operation; nil for orders and refunds
}

// StoredResponse describes the stored response of a key.
type StoredResponse struct {
	Status   int     `json:"status"`
	Type     *string `json:"type"`     // of a problem, such as /problems/payment-declined
	Location *string `json:"location"` // nil if the response has none
}

// StateExpired is the state of a key that was reaped.
const StateExpired = "expired"

// State returns the state of the key, see [idempotency.Status.State].
func (k KeyStatus) State() string {
	if k.Expired {
		return StateExpired
	}
	return k.Status.State()
}

// Settled reports whether no run is expected: the key is finished, expired or needs review.
func (k KeyStatus) Settled() bool {
	unsettled := []string{idempotency.StateInProgress, idempotency.StateWaiting, idempotency.StateActionRequired}
	return !slices.Contains(unsettled, k.State())
}

// KeyStatus returns the status of a key, which may be reaped. The error is
// [idempotency.ErrNotFound] if the key was never used.
func (s *Service) KeyStatus(ctx context.Context, accountID uuid.UUID, key idempotency.Key) (KeyStatus, error) {
	status, response, err := s.Engine.Lookup(ctx, accountID, key)
	expired, reaped := errors.AsType[*idempotency.KeyExpiredError](err)
	if reaped {
		status, err = expired.Key, nil
	}
	if err != nil {
		return KeyStatus{}, err
	}
	order, refund := ResourcesOf(status)
	return KeyStatus{
		Status: status, Expired: reaped, Response: describe(response), OrderID: order, RefundID: refund, Resource: s.Registrations.ResourceOf(status),
	}, nil
}

func describe(response idempotency.Response) *StoredResponse {
	if response.Status == 0 {
		return nil
	}
	stored := &StoredResponse{Status: response.Status}
	if location, ok := response.Headers["Location"]; ok {
		stored.Location = &location
	}
	var p failure
	if response.Headers["Content-Type"] == problemMediaType && json.Unmarshal(response.Body, &p) == nil {
		stored.Type = &p.Type
	}
	return stored
}

// ResourcesOf returns the ids of the order and refund that a key's request names or
// creates, or uuid.Nil.
func ResourcesOf(key idempotency.Status) (order, refund uuid.UUID) {
	switch key.Operation {
	case createOrder{}.Name():
		return orderID(key.AccountID, key.Key), uuid.Nil
	case createRefund{}.Name():
		order, _ = uuid.Parse(strings.TrimSuffix(strings.TrimPrefix(key.Path, "/v1/orders/"), "/refunds"))
		return order, refundID(key.AccountID, key.Key)
	default:
		return uuid.Nil, uuid.Nil // registered, or of a newer version (R18)
	}
}
