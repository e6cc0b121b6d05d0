package stripetest

import (
	"fmt"
	"html"
	"net/http"
	"strings"
)

// An apiError is the error of an answer, and of an intent's last attempt. Its
// constructors stand beside the code that refuses; here are those that many
// use.
type apiError struct {
	status int
	retry  bool

	AdviceCode         string         `json:"advice_code,omitempty"`
	Charge             string         `json:"charge,omitempty"`
	Code               string         `json:"code,omitempty"`
	DeclineCode        string         `json:"decline_code,omitempty"`
	DocURL             string         `json:"doc_url,omitempty"`
	Message            string         `json:"message"`
	NetworkDeclineCode string         `json:"network_decline_code,omitempty"`
	Param              *string        `json:"param,omitempty"`
	PaymentIntent      *intent        `json:"payment_intent,omitempty"`
	PaymentMethod      *paymentMethod `json:"payment_method,omitempty"`
	Type               string         `json:"type"`
}

func (e *apiError) answer() *answer {
	a := &answer{status: e.status, body: encode(map[string]*apiError{"error": e})}
	if e.retry {
		a.retry = "true"
	}
	return a
}

// invalidRequest is the type of everything but declines, idempotency errors
// and Stripe's own failures. Code and param may be empty.
func invalidRequest(status int, code, param, message string) *apiError {
	e := &apiError{
		status:  status,
		Type:    "invalid_request_error",
		Code:    code,
		DocURL:  docURL(code),
		Message: message,
	}
	if param != "" {
		e.Param = &param
	}
	return e
}

// missing answers an unknown id: 404 when the id is in the path, 400 when it
// is a parameter.
func missing(status int, param, object, id string) *apiError {
	return invalidRequest(status, "resource_missing", param, fmt.Sprintf("No such %s: '%s'", object, abbreviate(id)))
}

func unauthorized(message string) *apiError {
	return &apiError{status: http.StatusUnauthorized, Type: "invalid_request_error", Message: message}
}

func rateLimited() *apiError {
	return invalidRequest(http.StatusTooManyRequests, "rate_limit", "",
		"Request rate limit exceeded. Please retry with exponential backoff.")
}

// lockTimeout answers a request for an object that another one is working on.
func lockTimeout() *apiError {
	e := invalidRequest(http.StatusTooManyRequests, "lock_timeout", "",
		"This object cannot be accessed right now because another API request or Stripe process is currently "+
			"accessing it. If you see this error intermittently, retry the request.")
	e.retry = true
	return e
}

func serverError() *apiError {
	return &apiError{
		status:  http.StatusInternalServerError,
		Type:    "api_error",
		Message: "An error occurred on our end. (The stand-in was told to say so.)",
	}
}

// htmlAnswer is what a proxy in front of Stripe says, without Stripe's headers.
func htmlAnswer(status int) *answer {
	text := html.EscapeString(fmt.Sprintf("%d %s", status, http.StatusText(status)))
	return &answer{
		status: status,
		html:   true,
		body:   []byte("<html><head><title>" + text + "</title></head><body><h1>" + text + "</h1></body></html>\n"),
	}
}

func docURL(code string) string {
	if code == "" {
		return ""
	}
	return "https://stripe.com/docs/error-codes/" + strings.ReplaceAll(code, "_", "-")
}
