package shop

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/client"
)

// Path is the path of the storefront.
const Path = "/shop"

// Config configures a [Shop].
type Config struct {
	Pool           *pgxpool.Pool
	Orders         *client.Client // of the orders API
	Logger         *slog.Logger
	PublishableKey string   // of Stripe, for the browser
	FakeStripe     string   // origin of the fake Stripe; "" means Stripe itself
	EventSecrets   []string // of the shop's endpoint at the API; a second one while they are rotated

	Patience time.Duration // limit of one attempt, while the customer waits; 0 means 20 seconds
	Idle     time.Duration // Run continues a purchase after this time; longer than Patience; 0 means 30 seconds
}

// Shop is the storefront.
type Shop struct {
	Config

	handler http.Handler
	pages   *template.Template
	arrived chan struct{} // wakes Run after an event
}

//go:embed migrations static templates
var files embed.FS

// policy is the Content-Security-Policy that Stripe documents for Stripe.js
// (https://docs.stripe.com/security/guide), and allows inline styles, because Stripe.js sets them.
const policy = "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; img-src 'self' data:; " +
	"script-src 'self' https://js.stripe.com https://*.js.stripe.com %[1]s; " +
	"frame-src https://js.stripe.com https://*.js.stripe.com https://hooks.stripe.com; " +
	"connect-src 'self' https://api.stripe.com %[1]s; " +
	"style-src 'self' 'unsafe-inline'"

// New returns a Shop. [Migrate] creates its tables.
func New(config Config) *Shop {
	config.Patience = cmp.Or(config.Patience, 20*time.Second)
	config.Idle = cmp.Or(config.Idle, 30*time.Second)
	pages := template.New("").Funcs(template.FuncMap{"money": money})
	s := &Shop{Config: config, pages: template.Must(pages.ParseFS(files, "templates/*")), arrived: make(chan struct{}, 1)}
	routes := http.NewServeMux()
	routes.HandleFunc("GET "+Path, s.handle(s.showStorefront))
	routes.HandleFunc("POST "+Path+"/basket", s.handle(s.postBasket))
	routes.HandleFunc("GET "+Path+"/purchases/{id}", s.handle(s.showPurchase))
	routes.HandleFunc("POST "+Path+"/purchases/{id}/pay", s.handle(s.pay))
	routes.HandleFunc("POST "+EventsPath, s.handle(s.receiveEvent))
	routes.Handle("GET "+Path+"/static/", http.StripPrefix(Path, http.FileServerFS(files)))
	s.handler = http.NewCrossOriginProtection().Handler(routes)
	return s
}

// ServeHTTP serves everything below [Path].
func (s *Shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", fmt.Sprintf(policy, s.FakeStripe))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store") // so that the back button shows the current state
	s.handler.ServeHTTP(w, r)
}

func (s *Shop) handle(handler func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := handler(w, r); errors.Is(err, pgx.ErrNoRows) {
			http.NotFound(w, r)
		} else if err != nil {
			s.Logger.ErrorContext(r.Context(), "shop: request failed", "path", r.URL.Path, "error", err)
			http.Error(w, "The shop has a problem. Reload this page later: it shows whether you have paid.", http.StatusInternalServerError)
		}
	}
}

func (s *Shop) showStorefront(w http.ResponseWriter, r *http.Request) error {
	newest, err := s.one(r.Context(), "SELECT"+columns+"FROM shop.purchases WHERE customer = $1 ORDER BY created_at DESC LIMIT 1", customer(w, r))
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	return s.pages.ExecuteTemplate(w, "storefront", map[string]any{
		"Products": products(), "Newest": newest, "Empty": r.URL.Query().Has("empty"),
	})
}

func (s *Shop) postBasket(w http.ResponseWriter, r *http.Request) error {
	quantities := map[string]int64{}
	for _, product := range products() {
		if n, err := strconv.ParseInt(r.PostFormValue(product.SKU), 10, 8); err == nil && n > 0 {
			quantities[product.SKU] = n
		}
	}
	if len(quantities) == 0 {
		http.Redirect(w, r, Path+"?empty", http.StatusSeeOther)
		return nil
	}
	p, err := s.saveBasket(r.Context(), customer(w, r), quantities)
	if err == nil {
		http.Redirect(w, r, p.Path(), http.StatusSeeOther)
	}
	return err
}

// showPurchase shows the payment page or the result. Both have one URL, so that a reload, the back button
// and a second tab show the current state.
func (s *Shop) showPurchase(w http.ResponseWriter, r *http.Request) error {
	p, err := s.find(r.Context(), customer(w, r), r.PathValue("id"))
	if err != nil {
		return err
	}
	stripeJS := cmp.Or(s.FakeStripe, "https://js.stripe.com") + "/v3/"
	return s.pages.ExecuteTemplate(w, "purchase", map[string]any{"Purchase": p, "StripeJS": stripeJS, "Key": s.PublishableKey})
}

// pay stores a payment, or continues the stored one, and responds with its state.
func (s *Shop) pay(w http.ResponseWriter, r *http.Request) error {
	// The result is recorded even if the customer leaves.
	ctx := context.WithoutCancel(r.Context())
	p, err := s.find(ctx, customer(w, r), r.PathValue("id"))
	if card := r.PostFormValue("payment_method"); err == nil && p.State == inBasket && card != "" {
		if r.PostFormValue("amount") == strconv.FormatInt(p.Amount(), 10) { // the total that the customer has seen
			p, err = s.submit(ctx, p, r.PostFormValue("email"), card)
		} else {
			p.Message = "Your basket has changed in another tab. Nothing was charged. Reload this page to see the new total."
		}
	}
	clientSecret := "" // only for this customer's browser; never stored or logged
	if err == nil && p.State == paying {
		p, clientSecret, err = s.attempt(ctx, p)
	}
	if errors.Is(err, pgx.ErrNoRows) { // the customer's cookie was deleted, so the page reloads and shows 404
		return json.NewEncoder(w).Encode(map[string]any{"state": "unknown"})
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(map[string]any{"state": p.State, "message": p.Message, "client_secret": clientSecret})
}

// customer returns the customer's cookie, or sets one. A real shop has accounts.
func customer(w http.ResponseWriter, r *http.Request) string {
	if cookie, err := r.Cookie("shop_customer"); err == nil {
		return cookie.Value
	}
	id := rand.Text()
	http.SetCookie(w, &http.Cookie{
		Name: "shop_customer", Value: id, Path: Path, MaxAge: 30 * 24 * 3600,
		HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode,
	})
	return id
}
