package httpjson

import (
	"strings"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
)

// Link names a resource and its path.
type Link struct {
	ID   uuid.UUID `json:"id"`
	Href string    `json:"href"`
}

// Links are the resources that a key's request creates or names: order, refund or, for another operation, resource.
type Links map[string]*Link

// Linker is an [idempotency.Operation] whose keys have Links.
type Linker interface {
	Links(key idempotency.StoredKey) Links
}

// LinksOf returns the links of a key, or nil if its records are lost or its operation has none or is not registered.
func LinksOf(engine *idempotency.Engine, key idempotency.StoredKey) Links {
	linker, ok := engine.Operation(key.Operation).(Linker)
	if !ok || key.Lost {
		return nil
	}
	return linker.Links(key)
}

// NewLink links to a resource of a collection such as /v1/orders.
func NewLink(collection string, id uuid.UUID) *Link {
	return &Link{ID: id, Href: collection + "/" + id.String()}
}

// Created adds a link to the resource that a key's request creates, whose id derives from the key, unless the client's
// key is not known any more.
func (l Links) Created(name string, key idempotency.StoredKey, derive func(uuid.UUID, idempotency.Key) uuid.UUID) Links {
	if key.Key != "" {
		l[name] = NewLink(key.Path, derive(key.AccountID, key.Key))
	}
	return l
}

// ParentID returns the {id} in the path of a request below another resource, or uuid.Nil.
func ParentID(pattern, path string) uuid.UUID {
	before, after, _ := strings.Cut(pattern, "{id}")
	id, _ := uuid.Parse(strings.TrimSuffix(strings.TrimPrefix(path, before), after))
	return id
}
