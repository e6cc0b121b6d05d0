// Command stripetest serves the fake Stripe, for programs in other processes or
// containers:
//
//	go run ./cmd/stripetest -addr 127.0.0.1:12111
//	STRIPE_API_BASE=http://127.0.0.1:12111 STRIPE_SECRET_KEY=sk_test_anything orders serve
//
// The page at / lists the requests. It sends no webhooks, and data is lost at exit.
// Customer, staff and seller act by these calls:
//
//	curl -d client_secret=pi_…_secret_… http://127.0.0.1:12111/customer/pi_…/approve # or /decline
//	curl -u sk_test_x: -d payment_intent=pi_… http://127.0.0.1:12111/v1/refunds
//	curl -u sk_test_x: -d 'evidence[uncategorized_text]=winning_evidence' http://127.0.0.1:12111/v1/disputes/dp_…
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"example.com/orders-api/payments/stripetest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the process
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "stripetest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("stripetest", flag.ContinueOnError)
	address := flags.String("addr", "127.0.0.1:12111", "address to listen on")
	delay := flags.Duration("delay", 0, "latency of each request")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *delay < 0 {
		flags.Usage()
		return errors.New("invalid arguments")
	}

	stripe := stripetest.New(stripetest.Options{})
	if *delay > 0 {
		stripe.Inject(stripetest.Rule{Fault: stripetest.Slow, Delay: *delay, Times: stripetest.Always})
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *address)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "fake Stripe: http://%s\n", listener.Addr())
	go func() {
		for tick := time.NewTicker(time.Second); ctx.Err() == nil; <-tick.C {
			stripe.SettleRefunds(2 * time.Second)
		}
	}()
	server := &http.Server{Handler: stripetest.CheckHost(*address, stripe), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() {
		stripe.Close()
		_ = server.Close()
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
