package orders

import (
	"cmp"
	_ "embed"
	"slices"
	"strings"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/payments"
)

// Problem is the stored response of a request about an order that can no longer succeed: of an order or a refund that
// failed (R23, cancel first), or of a cancel that came after the charge.
type Problem struct {
	httpjson.Problem
	Code            string    `json:"code,omitempty"`
	DeclineCode     string    `json:"decline_code,omitempty"`
	ProviderMessage string    `json:"provider_message,omitempty"` // for operators, unlike detail
	OrderID         uuid.UUID `json:"order_id"`
}

// Finish returns the transition that stores the problem as the response of the key.
func (p Problem) Finish(order uuid.UUID) (idempotency.Transition, error) {
	p.OrderID = order
	return httpjson.FinishProblem(p)
}

// Declined is the problem of a declined payment.
func Declined(d payments.Decline) Problem {
	detail := cmp.Or(buyerText(d.DeclineCode), buyerText(d.Code), "The card was declined. Please use another card, or ask your bank.")
	return Problem{
		Problem:         httpjson.NewProblem("payment-declined", 402, "The payment was declined", detail),
		Code:            cmp.Or(d.Code, "card_declined"), // a failed order requires a code
		DeclineCode:     d.DeclineCode,
		ProviderMessage: d.Message,
	}
}

// DeclinedBy is [Declined] for the error of a call.
func DeclinedBy(failed *payments.Error) Problem {
	return Declined(payments.Decline{Code: failed.Code, DeclineCode: failed.DeclineCode, Message: failed.Message})
}

// Refused is the problem of a request that the provider refused, or that was closed before its effect.
func Refused(code, detail string) Problem {
	return Problem{Problem: httpjson.NewProblem("payment-refused", 422, "The request was refused", detail), Code: code}
}

// RefusedBy is [Refused] for the error of a call.
func RefusedBy(failed *payments.Error) Problem {
	p := Refused(cmp.Or(failed.Code, "payment_refused"), cmp.Or(buyerText(failed.Code), "The payment provider did not accept the request."))
	p.ProviderMessage = failed.Message
	if slices.Contains([]string{"charge_already_refunded", "charge_not_refundable"}, p.Code) {
		p.Retry = "never" // a disputed charge is not among them, because a new key succeeds once the dispute is won
	}
	return p
}

// NotOurRefund is the code of the error of a run that refuses the provider's refund.
const NotOurRefund = "not_our_refund"

// RetryLater returns the error of a step without a final outcome, so that no response is stored (R11,
// final only). attrs are for the log.
func (s *Service) RetryLater(kind error, failed *payments.Error, attrs ...any) error {
	if failed.NeedsOperator {
		s.Logger.Error("the payment provider's response needs an operator", append(attrs, "error", failed)...)
	}
	return &httpjson.ProviderError{Kind: kind, RetryAfter: failed.RetryDelay(), Cause: failed}
}

//go:embed buyer_text.txt
var buyerTexts string // each line is a text and the codes that have it

// buyerText is what a customer may read about a code or decline code, or "" if only a general text is
// allowed. For example, only the card's issuer may tell a cardholder that the card was reported stolen
// (https://docs.stripe.com/declines/codes, July 2026).
func buyerText(code string) string {
	for line := range strings.Lines(buyerTexts) {
		text, codes, _ := strings.Cut(line, ": ")
		if slices.Contains(strings.Fields(codes), code) {
			return text
		}
	}
	return ""
}
