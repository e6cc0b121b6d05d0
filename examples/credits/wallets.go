package credits

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// Wallets is the client of the wallet service. Timeout is shorter than a lease, so that a call ends before
// another run can take over (R9, order of the durations).
type Wallets struct {
	URL       string
	Transport http.RoundTripper
	Timeout   time.Duration
}

// Outcome is the decision of the wallet service. Each of its answers has it as status.
type Outcome string

// The outcomes.
const (
	Granted   Outcome = "granted"   // the wallet has the credit, once
	Refused   Outcome = "refused"   // this call granted nothing, but an earlier one may be in flight
	Cancelled Outcome = "cancelled" // no call can grant the credit any more
)

// Put grants the credit. The service grants an id once, so Put may be repeated. After an error, the outcome
// is unknown.
func (w *Wallets) Put(ctx context.Context, credit Credit) (Outcome, error) {
	body, err := json.Marshal(map[string]any{"wallet": credit.Wallet, "amount": credit.Amount})
	if err != nil {
		return "", err
	}
	return w.send(ctx, http.MethodPut, credit.ID, body, map[int]Outcome{
		http.StatusOK: Granted, http.StatusCreated: Granted,
		http.StatusNotFound: Refused, http.StatusUnprocessableEntity: Refused, http.StatusGone: Cancelled,
	})
}

// Cancel makes the service refuse the id from now on, so that a put in flight can grant nothing (R23, cancel
// first).
func (w *Wallets) Cancel(ctx context.Context, credit Credit) (Outcome, error) {
	return w.send(ctx, http.MethodDelete, credit.ID, nil, map[int]Outcome{http.StatusOK: Cancelled, http.StatusConflict: Granted})
}

func (w *Wallets) send(ctx context.Context, method string, id uuid.UUID, body []byte, outcomes map[int]Outcome) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, w.URL+"/credits/"+id.String(), bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	// Without GetBody, net/http cannot resend the request, and RoundTrip follows no redirect, so no other address
	// can answer for the service (R31, one call, one answer).
	request.GetBody = nil
	response, err := w.Transport.RoundTrip(request)
	if err != nil {
		return "", fmt.Errorf("wallet service: %w", err)
	}
	defer response.Body.Close()
	outcome, documented := outcomes[response.StatusCode]
	if !documented { // also a 101, whose body is the connection itself, so the timeout would not end reading it
		return "", fmt.Errorf("wallet service: status %d", response.StatusCode)
	}
	// A gateway can answer with the same status, so an answer counts only with the body that the service documents.
	var answer struct {
		ID     uuid.UUID `json:"id"`
		Status Outcome   `json:"status"`
	}
	err = json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&answer)
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" || answer.ID != id || answer.Status != outcome {
		return "", fmt.Errorf("wallet service: status %d without the documented body", response.StatusCode)
	}
	return outcome, nil
}

const maxAnswer = 64 << 10 // bytes
