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
	URL  string
	HTTP *http.Client
}

// Put creates the credit with its id, once, and reports whether the service accepted
// it. An error means that the outcome is unknown (R11).
func (w *Wallets) Put(ctx context.Context, credit Credit) (granted bool, err error) {
	body, err := json.Marshal(map[string]any{"wallet": credit.Wallet, "amount": credit.Amount})
	if err != nil {
		return false, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, w.URL+"/credits/"+credit.ID.String(), bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	response, err := w.HTTP.Do(request)
	if err != nil {
		return false, fmt.Errorf("wallet service: %w", err)
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK, http.StatusCreated:
		return true, nil
	case http.StatusNotFound, http.StatusUnprocessableEntity: // final: there is no such wallet
		return false, nil
	default:
		return false, fmt.Errorf("wallet service: status %d", response.StatusCode)
	}
}
