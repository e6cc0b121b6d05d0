package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"example.com/orders-api/client"
)

// Responses of the customer.
const (
	approves = "approve"
	declines = "decline"
	leaves   = "close" // closes the window
)

// customerTimeout is how long the window stays open, as the page says. The rest of
// playTimeout is for the order.
const customerTimeout = time.Minute

// askCustomer opens the customer's window for a 202, waits for the response and gives it
// to the provider. A customer who does not respond leaves.
func (p *play) askCustomer(ctx context.Context, response client.Response) error {
	var status struct {
		State  string
		Action struct {
			PaymentIntentID string `json:"payment_intent_id"`
		}
	}
	if err := json.Unmarshal(response.Body, &status); err != nil || status.State != "requires_action" {
		return fmt.Errorf("expected a required action, got %d", response.Status)
	}
	if p.response != "" {
		return errors.New("the bank asks a second time")
	}
	p.check("The API asked for the customer’s approval", true, fmt.Sprintf("%d %s", response.Status, status.State))
	p.update(func(v *view) { v.Asks = true })
	timer := time.AfterFunc(customerTimeout, func() { p.closeWindow(leaves) })
	defer timer.Stop()
	select {
	case p.response = <-p.responses:
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.response == leaves {
		return p.letTimePass(ctx)
	}
	if err := p.console.StandIn.Authenticate(status.Action.PaymentIntentID, p.response == approves); err != nil {
		return err
	}
	p.note(event{Lane: laneClient, Text: "the customer " + p.response + "s", Detail: "the bank informs the provider, not the API"})
	p.ledgerChanged()
	return p.pause(ctx)
}

// closeWindow closes the customer's window, or returns false if it is not open.
func (p *play) closeWindow(response string) bool {
	p.mu.Lock()
	open := p.view.Asks
	p.view.Asks = false
	p.mu.Unlock()
	if open {
		p.responses <- response
		p.console.changedNow()
	}
	return open
}

// letTimePass makes the order older than its charge window and runs the completer,
// instead of a wait of a day.
func (p *play) letTimePass(ctx context.Context) error {
	c := p.console
	p.note(event{Lane: laneClient, Kind: kindFault, Text: "the customer closes the window", Detail: "the client sends nothing"})
	if err := p.pause(ctx); err != nil {
		return err
	}
	if err := makeOlder(ctx, c.Pool, c.account, p.view.Key, chargeWindow); err != nil {
		return err
	}
	p.note(event{Lane: laneRow, Kind: kindRepair, Text: "a day later, orders completer runs", Detail: "the console made the order 24 hours older"})
	if err := c.completer.Start(); err != nil {
		return err
	}
	if err := c.completer.Wait(); err != nil {
		return fmt.Errorf("orders completer: %w", err)
	}
	return p.pause(ctx)
}
