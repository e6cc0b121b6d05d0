package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/orders-api/cmd/internal/hostcheck"
	"example.com/orders-api/internal/earlierdesigns"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

// designView is what a failure leads to in one design.
type designView struct {
	Title   string   `json:"title"`
	Charges int      `json:"charges"` // in the ledger of its fake
	Orders  int      `json:"orders"`  // paid ones
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

// compares reports whether the earlier designs have the failure, which is so for a play of the
// console. They take one card, which pays.
func (p *play) compares() bool {
	return p.claim == "" && p.Fake != nil && p.card.Pays && p.fault.earlier != nil
}

// compare runs the failure on the earlier designs, with two more fakes.
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

type shop interface {
	Order(ctx context.Context, key string) error
	PaidOrders(ctx context.Context) (int, error)
}

// runDesign sends the order, which has the failure, and then retries it.
func (p *play) runDesign(ctx context.Context, index int) error {
	fake := stripetest.New(stripetest.Options{})
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := listener.Addr().String()
	server := &http.Server{Handler: hostcheck.Handler(address, fake), ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	defer fake.Close() // before server.Close, so that no request is held

	redis, stripe := &earlierdesigns.Redis{}, earlierdesigns.Stripe("http://"+address)
	var design shop = earlierdesigns.LockedShop{Redis: redis, DB: p.Pool, Stripe: stripe}
	if index == oneCallShop {
		design = earlierdesigns.OneCallShop{DB: p.Pool, Stripe: stripe}
	}
	pass := func(d time.Duration) {
		fake.Advance(d)
		redis.Advance(d)
	}
	process, kill := context.WithCancel(ctx)
	defer kill()
	if p.fault.earlier.atProvider != "" {
		injected := fake.Inject(stripetest.Rule{Fault: p.fault.earlier.atProvider, Endpoint: "POST /v1/payment_intents"})
		if p.fault.earlier.atProvider == stripetest.HoldResponse {
			go func() {
				select {
				case <-injected.Reached():
					kill()
				case <-process.Done():
				}
			}()
		}
	}
	for attempt, title := range []string{firstTime, again, again, again} {
		failed := design.Order(process, string(p.request.Key))
		paid, err := design.PaidOrders(ctx)
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
		process = ctx // started again
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

// showDesign shows this service among the designs.
func (p *play) showDesign(v *view, order orders.Order) {
	if len(v.Designs) == 0 {
		return
	}
	d := &v.Designs[thisService]
	d.Charges, d.Orders, d.Lines = len(p.Fake.ChargesByOrder(order.ID.String())), 0, nil
	if order.Status == orders.StatusPaid {
		d.Orders = 1
	}
	for _, request := range v.Requests {
		if n := len(request.Responses); n > 0 {
			d.Lines = append(d.Lines, request.Title+": "+request.Responses[n-1].String())
		}
	}
}
