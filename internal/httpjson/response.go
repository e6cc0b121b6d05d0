package httpjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"example.com/orders-api/idempotency"
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
