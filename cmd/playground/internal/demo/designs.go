package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/orders-api/cmd/playground/earlierdesigns"
	"example.com/orders-api/cmd/playground/internal/devservices"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

// designView is the result of a failure in one design.
type designView struct {
	Title   string   `json:"title"`
	Charges int      `json:"charges"` // at its provider
	Orders  int      `json:"orders"`  // the paid orders in its database
	Lines   []string `json:"lines"`   // each request and its response
}

func designViews() []designView {
	return []designView{
		{Title: "A lock and a cached response"},
		{Title: "One call with the provider’s key"},
		{Title: "This service"},
	}
}

// The indexes of designViews.
const (
	lockedShop = iota
	oneCallShop
	thisService
)

// compares reports whether the play also runs the earlier designs. Only the console does, with the fake, a
// card that pays and a fault that the designs can meet.
func (p *play) compares() bool {
	return p.claim == "" && p.Fake != nil && p.card.Pays && p.fault.earlier != nil
}

// compare runs the failure on both earlier designs. Each has a fake of its own.
func (p *play) compare(ctx context.Context) error {
	if err := earlierdesigns.CreateTables(ctx, p.Pool); err != nil {
		return fmt.Errorf("create the tables of the earlier designs: %w", err)
	}
	var group errgroup.Group
	group.Go(func() error { return p.runDesign(ctx, lockedShop) })
	group.Go(func() error { return p.runDesign(ctx, oneCallShop) })
	err := group.Wait()
	_, dropped := p.Pool.Exec(context.WithoutCancel(ctx), earlierdesigns.DropTables)
	return errors.Join(err, dropped)
}

// runDesign injects the failure, sends an order that meets it, and then retries the order.
func (p *play) runDesign(ctx context.Context, index int) error {
	fake := stripetest.New(stripetest.Options{})
	url, stop, err := devservices.Serve(ctx, fake)
	if err != nil {
		return err
	}
	defer func() {
		fake.Close() // first, because it ends requests that a fault holds
		_ = stop()
	}()

	redis, stripe := &earlierdesigns.Redis{}, earlierdesigns.Stripe(url)
	locked := earlierdesigns.LockedShop{Redis: redis, DB: p.Pool, Stripe: stripe}
	order, paidOrders := locked.Order, locked.PaidOrders
	if index == oneCallShop {
		oneCall := earlierdesigns.OneCallShop{DB: p.Pool, Stripe: stripe}
		order, paidOrders = oneCall.Order, oneCall.PaidOrders
	}
	pass := func(d time.Duration) {
		fake.Advance(d)
		redis.Advance(d)
	}
	process, kill := context.WithCancel(ctx)
	defer kill()
	if failure := p.fault.earlier.atProvider; failure != "" {
		injected := fake.Inject(stripetest.Rule{Fault: failure, Endpoint: "POST /v1/payment_intents"})
		if failure == stripetest.HoldResponse {
			go func() {
				<-injected.Reached()
				kill()
			}()
		}
	}
	for attempt, title := range []string{firstTime, again, again, again} {
		failed := order(process, string(p.request.Key))
		paid, err := paidOrders(ctx)
		p.update(func(v *view) {
			d := &v.Designs[index]
			d.Charges, d.Orders, d.Lines = len(fake.Charges()), paid, append(d.Lines, title+": "+responseTo(failed))
		})
		if err != nil || failed == nil && title == again {
			return err
		}
		if errors.Is(failed, earlierdesigns.ErrInProgress) {
			pass(earlierdesigns.LockTTL)
		}
		if attempt == 0 {
			pass(p.fault.earlier.later)
		}
		process = ctx // the process is started again
		if err := wait(ctx, p.Latency); err != nil {
			return err
		}
	}
	return nil
}

func responseTo(failed error) string {
	switch {
	case failed == nil:
		return "201"
	case errors.Is(failed, context.Canceled):
		return "no response"
	case errors.Is(failed, earlierdesigns.ErrInProgress):
		return failed.Error()
	default:
		return "500"
	}
}

// showDesign updates the result of this service among the designs.
func (p *play) showDesign() {
	if len(p.view.Designs) == 0 {
		return
	}
	d := &p.view.Designs[thisService]
	d.Charges, _ = p.state.charges()
	if p.state.Status == orders.StatusPaid {
		d.Orders = 1
	}
	d.Lines = nil
	for _, request := range p.sent {
		if n := len(request.responses); n > 0 {
			d.Lines = append(d.Lines, request.title+": "+request.responses[n-1])
		}
	}
}
