package crash_test

import (
	"net/http"
	"slices"

	"example.com/orders-api/payments/stripetest"
)

type customer string

const (
	approves customer = "approves"
	declines customer = "declines"
	paysAnew customer = "pays-anew" // declines, and then pays with another card in the browser
	leaves   customer = "leaves"
)

// act has no effect if the action is not possible now. It needs no client secret, so it
// is possible before the API responds.
func (h *harness) act(does customer) {
	h.t.Helper()
	if does == "" || does == leaves {
		return
	}
	for _, i := range h.intents() {
		if i.Metadata["account_id"] != h.account.id.String() {
			continue
		}
		err := h.stripe.Authenticate(i.ID, does == approves)
		if does == paysAnew && (err == nil || i.Status == "requires_payment_method") {
			_ = h.stripe.ConfirmAsCustomer(i.ID, mastercard)
		}
	}
}

// wantStatus returns the status of the final response. A customer decides it, unless
// the payment ends first.
func (c testCase) wantStatus(h *harness) int {
	h.t.Helper()
	ids := h.query("SELECT id::text FROM orders WHERE account_id = $1", h.account.id)
	charged := slices.ContainsFunc(h.stripe.Charges(), func(ch stripetest.Charge) bool { return slices.Contains(ids, ch.OrderID) })
	if c.customer != "" && (charged || c.customer == approves && !c.flow.old) {
		return http.StatusCreated
	}
	return c.flow.status
}
