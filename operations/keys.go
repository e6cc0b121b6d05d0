package operations

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
)

// Resource links to a resource that the request of a key creates or names.
type Resource struct {
	ID   uuid.UUID `json:"id"`
	Href string    `json:"href"`
}

// Links are resources by their [Registration.Member].
type Links map[string]*Resource

// Links returns the resource that a key's request creates, if it creates one and the client's key is
// known, and the one above it. It returns nil if they are lost, and for an operation of a newer version
// (R18, newer versions).
func (s *Service) Links(key idempotency.StoredKey) Links {
	registered, known := s.find(key)
	if !known || key.Lost {
		return nil
	}
	links := Links{}
	if registered.ID != nil && key.Key != "" {
		id := registered.ID(key.AccountID, key.Key)
		links[registered.Member] = &Resource{ID: id, Href: key.Path + "/" + id.String()}
	}
	if registered.IsNested() {
		above, _, _ := strings.Cut(registered.Path, "/{id}")
		parent := ParentID(registered.Path, key.Path)
		for _, r := range s.Registrations {
			if r.Path == above {
				links[r.Member] = &Resource{ID: parent, Href: above + "/" + parent.String()}
			}
		}
	}
	return links
}

// KeyStatus is the status of a key.
type KeyStatus struct {
	idempotency.StoredKey
	Response *StoredResponse // nil if none is stored
	Links    Links
}

// StoredResponse describes a stored response.
type StoredResponse struct {
	Status   int     `json:"status"`
	Type     *string `json:"type"` // of a problem
	Location *string `json:"location"`
}

// Settled reports whether no run is expected.
func (k KeyStatus) Settled() bool {
	unsettled := []string{idempotency.StateInProgress, idempotency.StateWaiting, idempotency.StateActionRequired}
	return !slices.Contains(unsettled, k.State())
}

// KeyStatus returns the status of a key, or [idempotency.ErrNotFound] if it was never used.
func (s *Service) KeyStatus(ctx context.Context, accountID uuid.UUID, key idempotency.Key) (KeyStatus, error) {
	status, response, err := s.Engine.Lookup(ctx, accountID, key)
	if err != nil {
		return KeyStatus{}, err
	}
	return KeyStatus{status, describe(response), s.Links(status)}, nil
}

func describe(response idempotency.Response) *StoredResponse {
	if response.Status == 0 {
		return nil
	}
	stored := &StoredResponse{Status: response.Status}
	if location, ok := response.Headers["Location"]; ok {
		stored.Location = &location
	}
	var p httpjson.Problem
	if response.Headers["Content-Type"] == httpjson.ProblemMediaType && json.Unmarshal(response.Body, &p) == nil {
		stored.Type = &p.Type
	}
	return stored
}
