package httpjson

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
)

// ProblemMediaType is the Content-Type of a [Problem].
const ProblemMediaType = "application/problem+json"

// Problem is a problem document (RFC 9457). Embed it to add members. A stored one has no
// request_id, because it is replayed.
type Problem struct {
	Type    string `json:"type"`
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Detail  string `json:"detail"`
	Retry   string `json:"retry"`
	Outcome string `json:"outcome"`
}

// NewProblem returns a final Problem: only a request with a new key can still succeed.
func NewProblem(slug string, status int, title, detail string) Problem {
	return Problem{Type: "/problems/" + slug, Title: title, Status: status, Detail: detail, Retry: "new-key", Outcome: "final"}
}

// FinishCreated returns the transition that stores the response 201 with a new resource.
func FinishCreated(location string, resource any) (idempotency.Transition, error) {
	return finish(201, map[string]string{"Content-Type": "application/json", "Location": location}, resource)
}

// FinishOK returns the transition that stores the response 200 with a resource.
func FinishOK(resource any) (idempotency.Transition, error) {
	return finish(200, map[string]string{"Content-Type": "application/json"}, resource)
}

func (p Problem) status() int { return p.Status }

// FinishProblem returns the transition that stores a [Problem], or a problem that embeds one.
func FinishProblem(problem interface{ status() int }) (idempotency.Transition, error) {
	return finish(problem.status(), map[string]string{"Content-Type": ProblemMediaType}, problem)
}

func finish(status int, headers map[string]string, body any) (idempotency.Transition, error) {
	encoded, err := EncodeJSON(body)
	if err != nil {
		return idempotency.Transition{}, fmt.Errorf("encode response: %w", err)
	}
	return idempotency.Finish(idempotency.Response{Status: status, Headers: headers, Body: encoded}), nil
}

// EncodeJSON is json.Marshal without the escapes of <, > and &, which are six times as long.
func EncodeJSON(v any) ([]byte, error) {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(encoded.Bytes(), []byte("\n")), err
}

// Timestamp is a time as the API shows it: in UTC with PostgreSQL's six digits, so it sorts as
// text.
type Timestamp struct{ time.Time }

// ScanTimestamptz implements [pgtype.TimestamptzScanner].
func (t *Timestamp) ScanTimestamptz(v pgtype.Timestamptz) error {
	t.Time = v.Time.UTC()
	return nil
}

// MarshalJSON writes the timestamp.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	return []byte(t.UTC().Format(`"2006-01-02T15:04:05.000000Z"`)), nil
}

// QueryRow returns the one row of a query, or [ErrNotFound].
func QueryRow[T any](ctx context.Context, pool *pgxpool.Pool, scan pgx.RowToFunc[T], query string, arguments ...any) (T, error) {
	row, err := pgx.CollectExactlyOneRow(postgres.Query(ctx, pool, query, arguments...), scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, ErrNotFound
	}
	if err != nil {
		return row, fmt.Errorf("read: %w", postgres.Translate(err))
	}
	return row, nil
}

// Page selects a part of a list.
type Page struct {
	Limit   int
	After   uuid.UUID // the last resource of the page before, or uuid.Nil
	Filters map[string]string
}

// Cursor is the place of a row in a list, which is sorted by time and id.
type Cursor struct {
	CreatedAt time.Time
	ID        uuid.UUID
}

// Cursor returns the place of After, or without After the beginning of the list. created returns the
// time of a row.
func (p Page) Cursor(created func(id uuid.UUID) (Timestamp, error)) (Cursor, error) {
	if p.After == uuid.Nil {
		return Cursor{time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC), uuid.Max}, nil
	}
	at, err := created(p.After)
	if errors.Is(err, ErrNotFound) {
		err = Invalid("/after", CodeNotFound, "must be an id of this list")
	}
	return Cursor{at.Time, p.After}, err
}

// Link names a resource and its path.
type Link struct {
	ID   uuid.UUID `json:"id"`
	Href string    `json:"href"`
}

// Links are the resources that a key's request creates or names, by the member of the key's status that shows them:
// order, refund or, for another operation, resource.
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
