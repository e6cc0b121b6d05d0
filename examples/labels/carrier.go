package labels

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"time"

	"github.com/google/uuid"
)

// Carrier is the client of the carrier's API. Timeout is shorter than a lease, so that a call ends before another run
// can take over (R9, order of the durations).
type Carrier struct {
	URL       string
	Transport http.RoundTripper
	Timeout   time.Duration
}

// Parcel is what a label is for. The carrier gets the members as the client sends them.
type Parcel struct {
	Address string `json:"address"`
	Grams   int64  `json:"grams"`
}

// Answer is the body of each of the carrier's answers, as far as it is used.
type Answer struct {
	Reference      uuid.UUID `json:"reference"` // our id of the label
	Status         Status    `json:"status"`
	TrackingNumber string    `json:"tracking_number"` // of a bought label
}

// Status is what an [Answer] says about the label.
type Status string

// The documented values.
const (
	Bought  Status = "bought"
	None    Status = "none"    // the carrier does not list the label, but a request may be in flight
	Refused Status = "refused" // this request bought nothing, and would not later
	Busy    Status = "busy"    // this request bought nothing, but may later
)

// Find looks a label up by its id.
func (c *Carrier) Find(ctx context.Context, id uuid.UUID) (Answer, error) {
	return c.send(ctx, http.MethodGet, "/labels/"+id.String(), id, nil, map[int]Status{
		http.StatusOK: Bought, http.StatusNotFound: None,
	})
}

// Buy buys a label, each time it is called. After an error, the outcome is unknown.
func (c *Carrier) Buy(ctx context.Context, id uuid.UUID, parcel Parcel) (Answer, error) {
	body, err := json.Marshal(struct {
		Reference uuid.UUID `json:"reference"`
		Parcel
	}{id, parcel})
	if err != nil {
		return Answer{}, err
	}
	return c.send(ctx, http.MethodPost, "/labels", id, body, map[int]Status{
		http.StatusCreated: Bought, http.StatusUnprocessableEntity: Refused, http.StatusTooManyRequests: Busy,
	})
}

var trackingNumber = regexp.MustCompile(`^[!-~]{1,64}$`)

func (c *Carrier) send(ctx context.Context, method, path string, id uuid.UUID, body []byte, documented map[int]Status) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	// Without GetBody, net/http cannot resend the request, and RoundTrip follows no redirect, so no other address
	// can answer for the carrier (R31, one call, one answer).
	request.GetBody = nil
	response, err := c.Transport.RoundTrip(request)
	if err != nil {
		return Answer{}, fmt.Errorf("carrier: %w", err)
	}
	defer response.Body.Close()
	status, ok := documented[response.StatusCode]
	if !ok { // also a 101, whose body is the connection itself, so the timeout would not end reading it
		return Answer{}, fmt.Errorf("carrier: status %d", response.StatusCode)
	}
	// A gateway can answer with the same status, so an answer counts only with the body that the carrier documents.
	var answer Answer
	err = json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&answer)
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" || answer.Reference != id || answer.Status != status ||
		trackingNumber.MatchString(answer.TrackingNumber) != (status == Bought) {
		return Answer{}, fmt.Errorf("carrier: status %d without the documented body", response.StatusCode)
	}
	return answer, nil
}

const maxAnswer = 64 << 10 // bytes
