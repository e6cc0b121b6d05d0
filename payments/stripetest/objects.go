package stripetest

import (
	"crypto/rand"
	"encoding/json"
)

// Objects have the shape of Stripe's JSON. Unexported fields are the stand-in's own
// state.

// An optional string is null in JSON if it is empty.
type optional string

func (o optional) MarshalJSON() ([]byte, error) {
	if o == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(o))
}

// newID returns a random id in Stripe's format. Ids of an earlier run must not be used
// again after a restart.
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
	CaptureMethod           string            `json:"capture_method"`
	ClientSecret            string            `json:"client_secret"`
	ConfirmationMethod      string            `json:"confirmation_method"`
	Created                 int64             `json:"created"`
	Currency                string            `json:"currency"`
	Description             optional          `json:"description"`
	LastPaymentError        *apiError         `json:"last_payment_error"`
	LatestCharge            any               `json:"latest_charge"` // null, an id or, expanded, a charge
	Livemode                bool              `json:"livemode"`
	Metadata                map[string]string `json:"metadata"`
	NextAction              map[string]any    `json:"next_action"`
	PaymentMethod           optional          `json:"payment_method"`
	PaymentMethodTypes      []string          `json:"payment_method_types"`
	Processing              map[string]any    `json:"processing"`
	ReceiptEmail            optional          `json:"receipt_email"`
	Status                  string            `json:"status"`

	busy   bool // a request works on it: others get lock_timeout
	latest *charge
}

func (pi *intent) id() string       { return pi.ID }
func (pi *intent) createdAt() int64 { return pi.Created }

// view returns a copy of the intent for a response.
func (pi *intent) view(expandCharge bool) *intent {
	view := *pi
	switch {
	case pi.latest == nil:
	case expandCharge:
		view.LatestCharge = pi.latest
	default:
		view.LatestCharge = pi.latest.ID
	}
	return &view
}

type automaticMethods struct {
	AllowRedirects string `json:"allow_redirects"`
	Enabled        bool   `json:"enabled"`
}

type charge struct {
	ID                   string            `json:"id"`
	Object               string            `json:"object"`
	Amount               int64             `json:"amount"`
	AmountCaptured       int64             `json:"amount_captured"`
	AmountRefunded       int64             `json:"amount_refunded"`
	Captured             bool              `json:"captured"`
	Created              int64             `json:"created"`
	Currency             string            `json:"currency"`
	Description          optional          `json:"description"`
	FailureCode          optional          `json:"failure_code"`
	FailureMessage       optional          `json:"failure_message"`
	Livemode             bool              `json:"livemode"`
	Metadata             map[string]string `json:"metadata"`
	Outcome              chargeOutcome     `json:"outcome"`
	Paid                 bool              `json:"paid"`
	PaymentIntent        string            `json:"payment_intent"`
	PaymentMethod        string            `json:"payment_method"`
	PaymentMethodDetails map[string]any    `json:"payment_method_details"`
	ReceiptEmail         optional          `json:"receipt_email"`
	Refunded             bool              `json:"refunded"`
	Status               string            `json:"status"`

	card card
}

func (ch *charge) id() string       { return ch.ID }
func (ch *charge) createdAt() int64 { return ch.Created }

type chargeOutcome struct {
	NetworkStatus string   `json:"network_status"`
	Reason        optional `json:"reason"`
	RiskLevel     string   `json:"risk_level"`
	Type          string   `json:"type"`
}

type refund struct {
	ID            string            `json:"id"`
	Object        string            `json:"object"`
	Amount        int64             `json:"amount"`
	Charge        string            `json:"charge"`
	Created       int64             `json:"created"`
	Currency      string            `json:"currency"`
	FailureReason string            `json:"failure_reason,omitempty"`
	Metadata      map[string]string `json:"metadata"`
	PaymentIntent string            `json:"payment_intent"`
	Reason        optional          `json:"reason"`
	Status        string            `json:"status"`
}

func (re *refund) id() string       { return re.ID }
func (re *refund) createdAt() int64 { return re.Created }

type paymentMethod struct {
	ID       string            `json:"id"`
	Object   string            `json:"object"`
	Card     cardDetails       `json:"card"`
	Created  int64             `json:"created"`
	Livemode bool              `json:"livemode"`
	Metadata map[string]string `json:"metadata"`
	Type     string            `json:"type"`

	card   card
	usedBy string // the intent that was confirmed with it
}

func (pm *paymentMethod) id() string       { return pm.ID }
func (pm *paymentMethod) createdAt() int64 { return pm.Created }

type cardDetails struct {
	Brand       string `json:"brand"`
	Country     string `json:"country"`
	ExpMonth    int    `json:"exp_month"`
	ExpYear     int    `json:"exp_year"`
	Fingerprint string `json:"fingerprint"`
	Funding     string `json:"funding"`
	Last4       string `json:"last4"`
}
