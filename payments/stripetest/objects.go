package stripetest

import (
	"crypto/rand"
	"encoding/json"
	"slices"
)

// An optional string is null in JSON if it is empty.
type optional string

func (o optional) MarshalJSON() ([]byte, error) {
	if o == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(o))
}

// newID is random, so a restart does not repeat an id.
func newID(prefix string, length int) string {
	return prefix + rand.Text()[:length]
}

type intent struct {
	ID                      string            `json:"id"`
	Object                  string            `json:"object"`
	Amount                  int64             `json:"amount"`
	AmountReceived          int64             `json:"amount_received"`
	AutomaticPaymentMethods *automaticMethods `json:"automatic_payment_methods"`
	CanceledAt              *int64            `json:"canceled_at"`
	CancellationReason      optional          `json:"cancellation_reason"`
	ClientSecret            string            `json:"client_secret"`
	Created                 int64             `json:"created"`
	Currency                string            `json:"currency"`
	Description             optional          `json:"description"`
	LastPaymentError        *apiError         `json:"last_payment_error"`
	LatestCharge            optional          `json:"latest_charge"`
	Livemode                bool              `json:"livemode"`
	Metadata                map[string]string `json:"metadata"`
	NextAction              map[string]any    `json:"next_action"`
	PaymentMethod           optional          `json:"payment_method"`
	Status                  string            `json:"status"`

	busy     bool      // a request has locked it, and others get lock_timeout
	versions []version // for searches, oldest first
}

func (pi *intent) id() string       { return pi.ID }
func (pi *intent) createdAt() int64 { return pi.Created }

type automaticMethods struct {
	AllowRedirects string `json:"allow_redirects"`
	Enabled        bool   `json:"enabled"`
}

// A Charge is a successful or a failed charge.
type Charge struct {
	ID            string            `json:"id"`
	Object        string            `json:"object"`
	Amount        int64             `json:"amount"`
	Refunded      int64             `json:"amount_refunded"` // includes pending refunds, not failed ones
	Created       int64             `json:"created"`
	Currency      string            `json:"currency"`
	FailureCode   optional          `json:"failure_code"`
	Metadata      map[string]string `json:"metadata"`
	IntentID      string            `json:"payment_intent"`
	PaymentMethod string            `json:"payment_method"`
	Status        string            `json:"status"`

	OrderID string `json:"-"` // metadata[order_id]
}

func (ch *Charge) id() string { return ch.ID }

// A Refund is a refund in any state.
type Refund struct {
	ID            string            `json:"id"`
	Object        string            `json:"object"`
	Amount        int64             `json:"amount"`
	Charge        string            `json:"charge"`
	Created       int64             `json:"created"`
	Currency      string            `json:"currency"`
	FailureReason string            `json:"failure_reason,omitempty"`
	Metadata      map[string]string `json:"metadata"`
	IntentID      string            `json:"payment_intent"`
	Reason        optional          `json:"reason"`
	Status        string            `json:"status"`

	Name string `json:"-"` // metadata[refund_id]
}

func (re *Refund) id() string       { return re.ID }
func (re *Refund) createdAt() int64 { return re.Created }

// A Dispute is a dispute in any state. Inquiries have a status that begins with warning_.
type Dispute struct {
	ID       string            `json:"id"`
	Object   string            `json:"object"`
	Amount   int64             `json:"amount"`
	Charge   string            `json:"charge"`
	Created  int64             `json:"created"`
	Currency string            `json:"currency"`
	Metadata map[string]string `json:"metadata"`
	IntentID string            `json:"payment_intent"`
	Reason   string            `json:"reason"`
	Status   string            `json:"status"`

	Refundable bool `json:"is_charge_refundable"` // unless the dispute has withdrawn the charge
}

func (d *Dispute) set(status string) {
	d.Status = status
	d.Refundable = !slices.Contains([]string{"needs_response", "under_review", "lost"}, status)
}

func (d *Dispute) id() string       { return d.ID }
func (d *Dispute) createdAt() int64 { return d.Created }

// A paymentMethod is only in the state file.
type paymentMethod struct {
	ID       string `json:"id"`
	CardName string `json:"card_name"`
	UsedBy   string `json:"used_by"` // the intent that was confirmed with it
}

func (pm *paymentMethod) id() string { return pm.ID }
