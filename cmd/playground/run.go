package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/cmd/playground/internal/devservices"
	"example.com/orders-api/cmd/playground/internal/docs"
	"example.com/orders-api/events"
	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/receipts"
)

// extensions add pages to the server. To delete an extension, delete its lines and its files.
type extensions struct {
	consoleExtension
	shopExtension
}

// load reads the environment. Unlike app.Load, it accepts one without a database or a
// provider's key, and leaves these fields empty. It accepts only test keys,
// because a key of an unknown kind may move real money.
func load() (*app.Config, error) {
	const private, fake = "postgres://playground", "sk_test_playground"
	for name, value := range map[string]string{
		"DATABASE_URL":      private,
		"LISTEN_ADDR":       "127.0.0.1:8080", // loopback only, because playground run prints an API key
		"RECEIPTS_FROM":     "Orders <receipts@example.com>",
		"STRIPE_SECRET_KEY": fake,
	} {
		if strings.TrimSpace(os.Getenv(name)) == "" {
			_ = os.Setenv(name, value)
		}
	}
	if os.Getenv("EVENTS_URL") != "" && os.Getenv("EVENTS_SECRET") == "" {
		_ = os.Setenv("EVENTS_SECRET", string(devservices.EventsSecret()))
	}
	config, err := app.Load()
	if err != nil {
		return nil, err
	}
	if config.DatabaseURL == private {
		config.DatabaseURL = ""
	}
	switch {
	case config.Mode() != "test":
		return nil, errors.New("STRIPE_SECRET_KEY: is not a test key (its value is not shown), and the playground accepts no other; " +
			"expected sk_test_… or rk_test_…")
	case config.SecretKey == fake && config.APIBase != "":
		return nil, errors.New("STRIPE_API_BASE: set without STRIPE_SECRET_KEY; set both, or neither for the fake Stripe")
	case config.SecretKey == fake:
		config.SecretKey = ""
	}
	return config, nil
}

type run struct {
	extensions

	Reset bool `help:"Delete the private database and the state of the fake Stripe first."`
}

// Run starts the services, and then runs everything.
func (c *run) Run(ctx context.Context) (err error) {
	config, err := load()
	if err != nil {
		return err
	}
	if c.Reset && config.DatabaseURL != "" {
		return errors.New("--reset deletes the private database only, and DATABASE_URL names another one")
	}
	fmt.Println("playground run: API, worker, completer and reaper in one process; Ctrl-C ends it and keeps the data")
	folder, err := devservices.Folder(config.Stripe)
	if err != nil {
		return err
	}
	logger := config.Logger(os.Stderr)
	services, err := devservices.Start(ctx, &config.Database, &config.Stripe, embeddedpg.Options{
		DataDir: folder,
		Reset:   c.Reset,
		Logger:  logger,
		Notice:  func(line string) { fmt.Println(line) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, services.Stop()) }()
	if c.Reset {
		fmt.Printf("Deleted the database and the state of the fake Stripe in %s\n", folder)
	}
	return playground{config, services, folder, logger}.run(ctx, c.extensions)
}

// playground runs the API and its jobs. Its database and its provider have started.
type playground struct {
	config   *app.Config
	services *devservices.Services
	folder   string
	logger   *slog.Logger
}

// server is the server of a playground, which the extensions change before it starts.
type server struct {
	*app.Server
	playground

	base    string // URL of the API
	docs    string // URL of the API's documentation
	account uuid.UUID
	apiKey  string
	mailer  receipts.Mailer
	welcome strings.Builder
	jobs    []func(context.Context) error // each returns when ctx ends
}

// line adds a line to the welcome text.
func (s *server) line(name, value string) { fmt.Fprintf(&s.welcome, "%-12s %s\n", name, value) }

func (p playground) run(ctx context.Context, extensions extensions) error {
	if err := devservices.Migrate(ctx, p.config.Database); err != nil {
		return err
	}
	a, err := app.New(ctx, p.config)
	if err != nil {
		return err
	}
	defer a.Close()
	listening, err := a.Listen(ctx)
	if err != nil {
		return err
	}
	account, key, err := devservices.APIKey(ctx, a.Pool, filepath.Join(p.folder, "api-keys"))
	if err != nil {
		return err
	}
	mailer, err := p.mailer(ctx)
	if err != nil {
		return err
	}
	base := baseURL(listening.Listener.Addr().String())
	s := &server{Server: listening, playground: p, base: base, docs: base + docs.Path, account: account, apiKey: key, mailer: mailer}
	s.HTTP.Handler = docs.Mount(s.HTTP.Handler)
	if p.config.EventsURL != "" {
		s.line("Events", "to "+string(p.config.EventsURL)+"   signing secret: "+string(p.config.EventsSecret))
	}
	for _, extension := range []interface {
		add(context.Context, *server) error
	}{
		extensions.consoleExtension,
		extensions.shopExtension,
	} {
		if err := extension.add(ctx, s); err != nil {
			return err
		}
	}
	s.print() // before the first request, whose log line would interrupt it
	group, ctx := errgroup.WithContext(ctx)
	s.startJobs(ctx, group)
	for _, job := range s.jobs {
		group.Go(func() error { return job(ctx) })
	}
	group.Go(func() error { return s.Run(ctx, 0) })
	group.Go(func() error { return p.services.Watch(ctx) })
	group.Go(func() error {
		p.services.DeliverEvents(ctx, base+"/v1/webhooks/stripe", p.logger)
		return nil
	})
	return group.Wait()
}

// print prints the welcome text in one write, so that no log line interrupts it. Its curl line has a new
// idempotency key after each start, so that the user sees first a response and then its replay.
func (s *server) print() {
	extended := s.welcome.String()
	s.welcome.Reset()
	s.welcome.WriteString("\n")
	s.line("Orders API", s.base+"   contract: "+s.docs)
	s.welcome.WriteString(extended)
	if s.services.Postgres != nil {
		s.line("PostgreSQL", "psql '"+s.services.Postgres.URL("postgres")+"'")
	}
	stripe := s.config.Stripe
	switch {
	case s.services.SendsEvents():
		s.line("Stripe", "a fake that sends webhooks; its charges: "+stripe.APIBase)
	case s.services.Stripe != nil:
		s.line("Stripe", "a fake; its charges: "+stripe.APIBase)
	default:
		s.line("Stripe", stripe.ProviderURL()+" (mode: "+stripe.Mode()+")")
		if stripe.WebhookSecret == "" {
			s.line("Webhooks", "off; set STRIPE_WEBHOOK_SECRET to the secret that this command prints:")
			s.line("", "stripe listen --forward-to "+s.base+"/v1/webhooks/stripe")
		}
	}
	if s.services.DataDir != "" {
		s.line("Data", s.services.DataDir+"   playground run --reset deletes it")
	}
	s.line("API key", s.apiKey)
	fmt.Fprintf(os.Stdout, `%s
Create an order:

  curl -i %s/v1/orders -H 'Authorization: Bearer %s' \
    -H 'Content-Type: application/json' -H 'Idempotency-Key: my-order-%s' \
    -d '{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",
         "items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}]}'

Send the same line again: the same bytes come back, and nothing is charged twice.

`, &s.welcome, s.base, s.apiKey, time.Now().Format("20060102-150405"))
}

func (s *server) startJobs(ctx context.Context, group *errgroup.Group) {
	config, logger := s.config, s.logger
	workers := []*jobs.Worker{
		receipts.NewWorker(s.App.Pool, s.App.Orders.Receipt, s.mailer, config.ReceiptsFrom, logger),
		s.App.Changes.Worker(),
	}
	if config.EventsURL != "" {
		workers = append(workers, events.NewWorker(s.App.Pool, config.Endpoint(), logger))
	}
	loops := []app.Loop{
		{Command: "worker", Every: time.Minute, Work: s.App.Changes.ReadList},
		{Command: "completer", Every: time.Minute, Work: s.App.Complete},
		{Command: "reaper", Every: 10 * time.Minute, Work: s.App.Reap},
	}
	for _, worker := range workers {
		group.Go(func() error {
			loop := worker.Loop()
			app.Loop{Command: "worker", Every: time.Second, Work: loop.Pass}.Run(ctx, logger)
			loop.Wait()
			return nil
		})
	}
	for _, loop := range loops {
		group.Go(func() error {
			loop.Run(ctx, logger)
			return nil
		})
	}
}

// baseURL returns the URL of a listener for a browser on this machine.
func baseURL(address string) string {
	host, port, _ := net.SplitHostPort(address) // valid
	if host == "" || net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	return (&url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}).String()
}
