package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ErrEventRejected means that the API has not sent this request, or not now. Respond with 400.
var ErrEventRejected = errors.New("client: event rejected")

// Event names what has changed. It does not contain the change, so read the order.
type Event struct {
	ID        string    `json:"id"`   // the same in every attempt to deliver the event
	Type      string    `json:"type"` // such as order.paid; ignore types that you do not know
	Timestamp time.Time `json:"timestamp"`
	AccountID string    `json:"account_id"` // of the order
	Data      EventData `json:"data"`
}

// EventData names the objects of an event.
type EventData struct {
	OrderID   string `json:"order_id"`
	RefundID  string `json:"refund_id,omitempty"`  // set for refund.created and refund.updated
	DisputeID string `json:"dispute_id,omitempty"` // set for dispute.updated; Stripe's id
}

// eventTolerance limits how long a recorded request can be sent again, and how far the clocks of the
// API and the shop may differ.
const eventTolerance = 5 * time.Minute

// VerifyEvent returns the event in a request of the API to the shop's endpoint. body has the bytes as
// received. secrets are those that may be in use (whsec_…): while a secret is rotated, the old one and the
// new one. Any signature by any of them suffices. It returns ErrEventRejected if
// there is none, or if now is more than five minutes from the time of sending.
func VerifyEvent(secrets []string, header http.Header, body []byte, now time.Time) (Event, error) {
	id, sent := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(sent, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > eventTolerance {
		return Event{}, fmt.Errorf("%w: sent at %q, received at %d", ErrEventRejected, sent, now.Unix())
	}
	signed, err := hasSignature(secrets, header.Get("webhook-signature"), id+"."+sent+"."+string(body))
	if err != nil {
		return Event{}, err
	}
	if !signed {
		return Event{}, fmt.Errorf("%w: no signature is valid", ErrEventRejected)
	}
	var event Event
	if err := json.Unmarshal(body, &event); err != nil {
		return Event{}, fmt.Errorf("client: the event is signed, but it cannot be decoded: %w", err)
	}
	event.ID = id
	return event, nil
}

func hasSignature(secrets []string, signatures, content string) (found bool, err error) {
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) == 0 {
			return false, errors.New("client: a signing secret is not in base64")
		}
		mac := hmac.New(sha256.New, key)
		_, _ = mac.Write([]byte(content))
		want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		for signature := range strings.FieldsSeq(signatures) {
			found = hmac.Equal([]byte(signature), []byte(want)) || found
		}
	}
	return found, nil
}
