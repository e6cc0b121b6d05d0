package credits

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Wallets is the client of the wallet service. HTTP needs a Timeout well below the
// engine's LockTimeout (R9).
type Wallets struct {
	URL   string
	Token string // its credential for us
	HTTP  *http.Client
}

// Put grants the credit with its id, once. It returns why the service refused it, or "". An
// error means that the outcome is unknown (R11).
func (w *Wallets) Put(ctx context.Context, credit Credit) (refusal string, err error) {
	body, err := json.Marshal(map[string]any{"wallet": credit.Wallet, "amount": credit.Amount})
	if err != nil {
		return "", err
	}
	switch status, err := w.send(ctx, http.MethodPut, credit, body); {
	case err != nil:
		return "", err
	case status == http.StatusOK, status == http.StatusCreated:
		return "", nil
	case status == http.StatusNotFound, status == http.StatusUnprocessableEntity:
		return "There is no such wallet.", nil
	case status == http.StatusGone:
		return cancelled, nil
	default:
		return "", fmt.Errorf("wallet service: status %d", status)
	}
}

const cancelled = "The credit was closed by the seller before it was granted."

// Cancel ends a credit that an operator gives up. From then on the service refuses its id,
// so a call in flight grants nothing either (R23). It returns "" if the credit was granted
// before.
func (w *Wallets) Cancel(ctx context.Context, credit Credit) (refusal string, err error) {
	switch status, err := w.send(ctx, http.MethodDelete, credit, nil); {
	case err != nil:
		return "", err
	case status == http.StatusNoContent:
		return cancelled, nil
	case status == http.StatusConflict:
		return "", nil
	default:
		return "", fmt.Errorf("wallet service: status %d", status)
	}
}

func (w *Wallets) send(ctx context.Context, method string, credit Credit, body []byte) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, method, w.URL+"/credits/"+credit.ID.String(), bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+w.Token)
	response, err := w.HTTP.Do(request)
	if err != nil {
		return 0, fmt.Errorf("wallet service: %w", err)
	}
	defer response.Body.Close()
	return response.StatusCode, nil
}
