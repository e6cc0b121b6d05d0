package demo

import (
	"fmt"
	"slices"
	"time"

	"example.com/orders-api/payments/stripetest"
)

type card struct {
	ID    string
	Title string
	Pays  bool
	Asks  bool // the customer must approve each payment, which needs the fake
}

func cards() []card {
	return []card{
		{"pm_card_visa", "Visa 4242: pays", true, false},
		{"pm_card_mastercard", "Mastercard 4444: pays", true, false},
		{"pm_card_visa_chargeDeclinedInsufficientFunds", "Visa 9995: declined, insufficient funds", false, false},
		{"pm_card_threeDSecure2Required", "Visa 3220: pays if you approve", false, true},
	}
}

type fault struct {
	ID        string
	Title     string
	Story     string
	NeedsFake bool
	run       sequence

	// Compared faults happen to the earlier designs too.
	Compared   bool
	AtProvider stripetest.Fault // of their first call, "" for none
	Later      time.Duration    // the age of the order at the first retry
}

func faults() []fault {
	return []fault{
		{
			ID: "none", Title: "No failure", Story: "The card pays, or it is declined. Both results are final.",
			run: (*play).order, Compared: true,
		},
		{
			ID: "repeat", Title: "The same request again", Story: "The client sends the order twice, as after a timeout.",
			run: (*play).repeat, Compared: true,
		},
		{
			ID: "concurrent", Title: "20 concurrent requests", Story: "The same request with one key, 20 times at once.",
			run: (*play).concurrent,
		},
		{
			ID: "other", Title: "Another body", Story: "After the order, the client sends another one with its key.",
			run: (*play).otherBody,
		},
		{
			ID: "lost", Title: "The response is lost", Story: "The connection breaks right after the charge. The API returns 503.",
			run: (*play).lostResponse, Compared: true, AtProvider: stripetest.CloseAfter,
		},
		{
			ID: "killed", Title: "The process is killed", Story: "SIGKILL right after the charge, or while the customer approves.",
			run: (*play).killed, Compared: true, AtProvider: stripetest.HoldResponse,
		},
		{
			ID: "error", Title: "The provider returns 500", Story: "After the charge, and it stores the 500 under its key, as Stripe does.",
			NeedsFake: true, run: (*play).storedError, Compared: true, AtProvider: stripetest.ErrorAfter,
		},
		{
			ID: "late", Title: "A retry after 25 hours", Story: "The response is lost, and Stripe has deleted its key by then.",
			NeedsFake: true, run: (*play).lateRetry, Compared: true, AtProvider: stripetest.CloseAfter, Later: later,
		},
	}
}

const (
	approves = "approve"
	declines = "decline"
	leaves   = "close"
)

type scenario struct {
	card     card
	fault    fault
	customer string // decision; "" waits for one on the page
	claim    string
}

func (o Options) choose(cardID, faultID string) (scenario, error) {
	allCards, allFaults := cards(), faults()
	i := slices.IndexFunc(allCards, func(k card) bool { return k.ID == cardID })
	j := slices.IndexFunc(allFaults, func(f fault) bool { return f.ID == faultID })
	switch {
	case i < 0:
		return scenario{}, fmt.Errorf("there is no card %q", cardID)
	case j < 0:
		return scenario{}, fmt.Errorf("there is no fault %q", faultID)
	case allCards[i].Asks && o.Fake == nil:
		return scenario{}, errNeedsFake{"at Stripe, only a browser can approve"}
	case allFaults[j].NeedsFake && o.Fake == nil:
		return scenario{}, errNeedsFake{"Stripe does not fail on demand"}
	}
	return scenario{card: allCards[i], fault: allFaults[j]}, nil
}

type errNeedsFake struct{ reason string }

func (e errNeedsFake) Error() string { return "needs the fake Stripe: " + e.reason }

// claim is a line of the tour, and the scenario that proves it.
type claim struct{ text, card, fault, customer string }

func claims() []claim {
	const visa, declined, asks = "pm_card_visa", "pm_card_visa_chargeDeclinedInsufficientFunds", "pm_card_threeDSecure2Required"
	return []claim{
		{"an order is charged", visa, "none", ""},
		{"the same request again: the same bytes", visa, "repeat", ""},
		{"20 concurrent requests with one key", visa, "concurrent", ""},
		{"another body with a used key", visa, "other", ""},
		{"a declined card, and its replay", declined, "repeat", ""},
		{"the response is lost after the charge", visa, "lost", ""},
		{"SIGKILL after the charge, restart, retry", visa, "killed", ""},
		{"SIGKILL while the customer approves, retry", asks, "killed", approves},
		{"the provider stores a 500 after the charge", visa, "error", ""},
	}
}
