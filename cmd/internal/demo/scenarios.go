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
	earlier   *failure // nil if the earlier designs are not compared
}

// failure is what happens to an earlier design.
type failure struct {
	atProvider stripetest.Fault // of its first call, "" for none
	later      time.Duration    // how long after that the client retries
}

func faults() []fault {
	return []fault{
		{"none", "No failure", "The card pays, or it is declined. Both results are final.", false, (*play).order, &failure{}},
		{"repeat", "The same request again", "The client sends the order twice, as after a timeout.", false, (*play).repeat, &failure{}},
		{"concurrent", "20 concurrent requests", "The same request with one key, 20 times at once.", false, (*play).concurrent, nil},
		{"other", "Another body", "After the order, the client sends another one with its key.", false, (*play).otherBody, nil},
		{
			"lost", "The response is lost", "The connection breaks right after the charge. The API returns 503.", false,
			(*play).lostResponse, &failure{stripetest.CloseAfter, 0},
		},
		{
			"killed", "The process is killed", "SIGKILL right after the charge, or while the customer approves.", false,
			(*play).killed, &failure{stripetest.HoldResponse, 0},
		},
		{
			"error", "The provider returns 500", "After the charge, and it stores the 500 under its key, as Stripe does.", true,
			(*play).storedError, &failure{stripetest.ErrorAfter, 0},
		},
		{
			"late", "A retry after 25 hours", "The response is lost, and Stripe has deleted its key by then.", true,
			(*play).lateRetry, &failure{stripetest.CloseAfter, later},
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
