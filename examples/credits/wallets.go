package credits

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"
)

// Wallets is the client of the wallet service. HTTP needs a Timeout that is shorter than a lease, so that
// a call ends before another run can take over (R9, order of the durations).
type Wallets struct {
	URL  string
	HTTP *http.Client
}

// Outcome is the decision of the wallet service.
type Outcome int

// The outcomes.
const (
	Granted   Outcome = iota + 1 // the wallet has the credit, once
	Refused                      // this call granted nothing, but an earlier one may be in flight
	Cancelled                    // no call can grant the credit any more
)

// Put grants the credit. The service grants an id once, so Put may be repeated. After an error, the outcome
// is unknown.
func (w *Wallets) Put(ctx context.Context, credit Credit) (Outcome, error) {
	body, err := json.Marshal(map[string]any{"wallet": credit.Wallet, "amount": credit.Amount})
	if err != nil {
		return 0, err
	}
	return w.send(ctx, http.MethodPut, credit.ID, body, map[int]Outcome{
		http.StatusOK: Granted, http.StatusCreated: Granted,
		http.StatusNotFound: Refused, http.StatusUnprocessableEntity: Refused, http.StatusGone: Cancelled,
	})
}

// Cancel makes the service refuse the id from now on, so that a put in flight can grant nothing (R23, cancel
// first).
func (w *Wallets) Cancel(ctx context.Context, credit Credit) (Outcome, error) {
	return w.send(ctx, http.MethodDelete, credit.ID, nil, map[int]Outcome{http.StatusNoContent: Cancelled, http.StatusConflict: Granted})
}

func (w *Wallets) send(ctx context.Context, method string, id uuid.UUID, body []byte, outcomes map[int]Outcome) (Outcome, error) {
	request, err := http.NewRequestWithContext(ctx, method, w.URL+"/credits/"+id.String(), bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	// Without GetBody, net/http cannot resend the request, and without redirects no other address can
	// answer for the service (R31, one call, one answer).
	request.GetBody = nil
	client := *w.HTTP
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("wallet service: %w", err)
	}
	defer response.Body.Close()
	outcome, known := outcomes[response.StatusCode]
	if !known {
		return 0, fmt.Errorf("wallet service: status %d", response.StatusCode)
	}
	return outcome, nil
}
