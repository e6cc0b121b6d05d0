package credits

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"
)

// Wallets is the client of the wallet service. HTTP needs a Timeout below that of a lease (R9).
type Wallets struct {
	URL  string
	HTTP *http.Client
}

const (
	unknownWallet = "There is no such wallet."
	cancelled     = "The credit was closed by the seller before it was granted."
)

// Put grants the credit with its id, once. It returns why the service refused it, or "". After
// an error, the outcome is unknown.
func (w *Wallets) Put(ctx context.Context, credit Credit) (refusal string, err error) {
	body, err := json.Marshal(map[string]any{"wallet": credit.Wallet, "amount": credit.Amount})
	if err != nil {
		return "", err
	}
	return w.send(ctx, http.MethodPut, credit.ID, body, map[int]string{
		http.StatusOK: "", http.StatusCreated: "",
		http.StatusNotFound: unknownWallet, http.StatusUnprocessableEntity: unknownWallet, http.StatusGone: cancelled,
	})
}

// Cancel makes the service refuse the id, so a call in flight grants nothing either (R23). It
// returns "" if the credit was granted before.
func (w *Wallets) Cancel(ctx context.Context, credit Credit) (refusal string, err error) {
	return w.send(ctx, http.MethodDelete, credit.ID, nil, map[int]string{http.StatusNoContent: cancelled, http.StatusConflict: ""})
}

func (w *Wallets) send(ctx context.Context, method string, id uuid.UUID, body []byte, final map[int]string) (refusal string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, w.URL+"/credits/"+id.String(), bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := w.HTTP.Do(request)
	if err != nil {
		return "", fmt.Errorf("wallet service: %w", err)
	}
	defer response.Body.Close()
	refusal, isFinal := final[response.StatusCode]
	if !isFinal {
		return "", fmt.Errorf("wallet service: status %d", response.StatusCode)
	}
	return refusal, nil
}
