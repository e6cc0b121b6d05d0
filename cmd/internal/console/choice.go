package console

import (
	"context"
	"fmt"
	"slices"

	"example.com/orders-api/client"
)

// card is a payment method that the page offers.
type card struct {
	ID    string // at Stripe
	Title string
	Pays  bool
	Asks  bool // its bank asks the customer to approve each payment, which needs the stand-in
}

func cards() []card {
	return []card{
		{"pm_card_visa", "Visa 4242: pays", true, false},
		{"pm_card_mastercard", "Mastercard 4444: pays", true, false},
		{"pm_card_visa_chargeDeclinedInsufficientFunds", "Visa 9995: declined, insufficient funds", false, false},
		{"pm_card_threeDSecure2Required", "Visa 3220: pays if you approve", false, true},
	}
}

// failure is a failure that a person can cause, and how it is caused.
type failure struct {
	ID           string
	Title        string
	Story        string
	NeedsStandIn bool

	// play sends the order, causes the failure and returns the final response.
	play func(*play, context.Context) (client.Response, error)
}

func failures() []failure {
	return []failure{
		{"none", "Nothing", "The card pays, or it is declined. Either is final.", false, (*play).plain},
		{"lost", "The answer is lost", "The line breaks right after the charge. The API cannot know, and says so: 503.", false, (*play).lostAnswer},
		{"error", "The provider says 500", "After the charge, and it keeps that 500 under its own key, as Stripe does.", true, (*play).savedError},
		{"killed", "The process is killed", "SIGKILL right after the charge, or while the bank asks. The same request again continues.", false, (*play).killed},
		{"twins", "Twenty at once", "The same request, twenty times in the same moment.", false, (*play).twins},
		{"other", "Another body", "After the order, its key is used for another one.", false, (*play).otherBody},
	}
}

// choice is a card and a failure.
type choice struct {
	card    card
	failure failure
}

// choose returns the choice with these ids.
func (c *Console) choose(cardID, failureID string) (choice, error) {
	allCards, allFailures := cards(), failures()
	i := slices.IndexFunc(allCards, func(k card) bool { return k.ID == cardID })
	j := slices.IndexFunc(allFailures, func(f failure) bool { return f.ID == failureID })
	switch {
	case i < 0:
		return choice{}, fmt.Errorf("there is no card %q here", cardID)
	case j < 0:
		return choice{}, fmt.Errorf("there is no failure %q here", failureID)
	case allCards[i].Asks && c.StandIn == nil:
		return choice{}, fmt.Errorf("%q needs the stand-in: at Stripe, only Stripe.js can open the bank’s window", cardID)
	case allFailures[j].NeedsStandIn && c.StandIn == nil:
		return choice{}, fmt.Errorf("%q needs the stand-in: Stripe does not fail on demand", failureID)
	}
	return choice{allCards[i], allFailures[j]}, nil
}
