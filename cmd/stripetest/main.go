// Command stripetest serves the stand-in for Stripe, for programs that run in
// another process or another container:
//
//	go run ./cmd/stripetest -addr 127.0.0.1:12111
//	STRIPE_API_BASE=http://127.0.0.1:12111 STRIPE_SECRET_KEY=sk_test_anything orders serve
//
// Its page at / shows what it was asked. Everything is in memory and gone with
// the process.
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
	context.AfterFunc(ctx, stop) // a second signal kills
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "stripetest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("stripetest", flag.ContinueOnError)
	address := flags.String("addr", "127.0.0.1:12111", "address to listen on")
	delay := flags.Duration("delay", 0, "how long each request takes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *delay < 0 {
		flags.Usage()
		return errors.New("arguments not understood")
	}

	stripe := stripetest.New(stripetest.Options{})
	if *delay > 0 {
		stripe.Inject(stripetest.Rule{Fault: stripetest.Slow, Delay: *delay, Times: stripetest.Always})
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *address)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "stand-in for Stripe: http://%s\n", listener.Addr())
	server := &http.Server{Handler: stripe, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() {
		stripe.Close()
		_ = server.Close()
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
