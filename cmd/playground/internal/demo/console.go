package demo

import (
	"context"
	"embed"
	"encoding/json"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"example.com/orders-api/cmd/playground/internal/docs"
)

// Console is the page /console, with an API process that it can kill. It is also the worker's mailer,
// so that it can count the receipts.
type Console struct {
	*system
	logger *slog.Logger
	starts chan scenario // sent by the page; Run runs one scenario at a time
}

// NewConsole returns the console. The caller must call Run, because Run closes it.
func NewConsole(ctx context.Context, options Options, logger *slog.Logger) (*Console, error) {
	s, err := newSystem(ctx, options)
	if err != nil {
		return nil, err
	}
	return &Console{s, logger, make(chan scenario)}, nil
}

// Run runs the scenarios that the page starts, until ctx ends.
func (c *Console) Run(ctx context.Context) error {
	for {
		select {
		case chosen := <-c.starts:
			if err := newPlay(c.system, chosen).run(ctx); err != nil {
				c.logger.WarnContext(ctx, "console: scenario failed", "fault", chosen.fault.ID, "error", err)
			}
		case <-ctx.Done():
			return c.close()
		}
	}
}

//go:embed static
var static embed.FS

const pagePath = "/console"

// Mount returns a handler that serves the console, and the API for any other request.
func (c *Console) Mount(api http.Handler) http.Handler {
	page := template.Must(template.ParseFS(static, "static/page.html"))
	files := http.NewServeMux()
	files.HandleFunc("GET "+pagePath+"/console.css", file("console.css"))
	files.HandleFunc("GET "+pagePath+"/console.js", file("console.js"))
	files.HandleFunc("GET "+pagePath+"/play", c.show)
	files.HandleFunc("POST "+pagePath+"/play", c.start)
	files.HandleFunc("POST "+pagePath+"/decision", c.decide)
	files.HandleFunc("GET "+pagePath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = page.Execute(w, map[string]any{"Cards": cards(), "Faults": faults(), "Fake": c.Fake != nil})
	})
	guarded := c.guard(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/" && r.Method == http.MethodGet:
			http.Redirect(w, r, pagePath, http.StatusFound)
		case r.URL.Path == docs.Path && r.Method == http.MethodGet:
			c.docs(w, r, api)
		case r.URL.Path == pagePath, strings.HasPrefix(r.URL.Path, pagePath+"/"):
			guarded.ServeHTTP(w, r)
		default:
			api.ServeHTTP(w, r)
		}
	})
}

func file(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, static, "static/"+name) }
}

func (c *Console) show(w http.ResponseWriter, _ *http.Request) {
	content := []byte("null")
	if p := c.current.Load(); p != nil {
		p.update(func(v *view) { content, _ = json.Marshal(v) })
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(content)
}

const busyTimeout = time.Second

func (c *Console) start(w http.ResponseWriter, r *http.Request) {
	chosen, err := c.choose(r.PostFormValue("card"), r.PostFormValue("fault"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	select {
	case c.starts <- chosen:
		w.WriteHeader(http.StatusAccepted)
	case <-time.After(busyTimeout):
		http.Error(w, "another order is in progress; a fault must not affect two orders", http.StatusConflict)
	}
}

func (c *Console) decide(w http.ResponseWriter, r *http.Request) {
	decision := r.PostFormValue("decision")
	switch p := c.current.Load(); {
	case decision != approves && decision != declines:
		http.Error(w, "there is no such decision", http.StatusUnprocessableEntity)
	case p == nil || !p.decide(decision):
		http.Error(w, "the customer is not asked", http.StatusConflict)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}
