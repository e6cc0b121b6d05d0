package stripetest

import (
	"fmt"
	"net/http"
)

type apiError struct {
	status int

	Charge        string  `json:"charge,omitempty"`
	Code          string  `json:"code,omitempty"`
	DeclineCode   string  `json:"decline_code,omitempty"`
	Message       string  `json:"message"`
	Param         string  `json:"param,omitempty"`
	PaymentIntent *intent `json:"payment_intent,omitempty"`
	Type          string  `json:"type"`
}

func (e *apiError) response() *response {
	resp := &response{Status: e.status, Body: encode(map[string]*apiError{"error": e})}
	if e.Code == "lock_timeout" {
		resp.Retry = "true"
	}
	return resp
}

func invalidRequest(status int, code, param, message string) *apiError {
	return &apiError{status: status, Type: "invalid_request_error", Code: code, Param: param, Message: message}
}

// missing is the error of an unknown id: 404 for the path, 400 for a parameter.
func missing(status int, param, object, id string) *apiError {
	return invalidRequest(status, "resource_missing", param, fmt.Sprintf("No such %s: '%s'", object, id))
}

func unauthorized(message string) *apiError {
	return invalidRequest(http.StatusUnauthorized, "", "", message)
}

func invalidKey(*call) *apiError {
	return unauthorized("Invalid API Key provided: sk_test_***")
}

func forbidden(c *call) *apiError {
	return invalidRequest(http.StatusForbidden, "", "", fmt.Sprintf("The provided key 'rk_test_***' does not have the "+
		"required permissions for this endpoint (%s).", c.pattern))
}

func rateLimited(*call) *apiError {
	return invalidRequest(http.StatusTooManyRequests, "rate_limit", "",
		"Request rate limit exceeded. Please retry with exponential backoff.")
}

func lockTimeout(*call) *apiError {
	return invalidRequest(http.StatusTooManyRequests, "lock_timeout", "",
		"This object cannot be accessed right now because another API request or Stripe process is currently "+
			"accessing it. If you see this error intermittently, retry the request.")
}

func declineLimitExceeded() *apiError {
	return invalidRequest(http.StatusBadRequest, "card_decline_rate_limit_exceeded", "",
		"You have exceeded the maximum number of declines on this card in the last 24 hour period. Please contact us via "+
			"https://support.stripe.com/contact if you need further assistance.")
}

func accountNotReady(*call) *apiError {
	return invalidRequest(http.StatusBadRequest, "", "",
		"No valid payment method types for this Payment Intent. Please ensure that you have activated payment "+
			"methods compatible with your chosen currency in your dashboard (https://dashboard.stripe.com/settings/payments).")
}

func balanceTooLow(*call) *apiError { // Stripe states no code
	return invalidRequest(http.StatusBadRequest, "", "", "Insufficient funds in your Stripe balance to refund this amount.")
}

func serverError(*call) *apiError {
	return &apiError{
		status:  http.StatusInternalServerError,
		Type:    "api_error",
		Message: "An error occurred on our end. (Injected fault of the fake.)",
	}
}

func htmlResponse(status int) *response {
	return &response{Status: status, html: true, Body: fmt.Appendf(nil, "<html><h1>%d %s</h1></html>\n", status, http.StatusText(status))}
}
