package console

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
)

//go:embed static
var static embed.FS

// Path is the path of the console.
const Path = "/console"

// Mount returns a handler that serves the console and passes every other request to
// the API.
func (c *Console) Mount(api http.Handler) (http.Handler, error) {
	page, err := template.ParseFS(static, "static/page.html")
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	files := http.NewServeMux()
	files.HandleFunc("GET "+Path+"/console.css", file("console.css"))
	files.HandleFunc("GET "+Path+"/console.js", file("console.js"))
	files.HandleFunc("GET "+Path+"/plays", c.stream)
	files.HandleFunc("POST "+Path+"/plays", c.order)
	files.HandleFunc("POST "+Path+"/customer", c.respondAsCustomer)
	files.HandleFunc("GET "+Path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		err := page.Execute(w, map[string]any{
			"Cards": cards(), "Failures": failures(), "StandIn": c.StandIn != nil, "APIKey": c.APIKey,
		})
		if err != nil {
			c.Logger.Warn("console: page not written", "error", err)
		}
	})
	guarded := c.guard(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/" && r.Method == http.MethodGet: // not a route of the API
			http.Redirect(w, r, Path, http.StatusFound)
		case r.URL.Path == Path, strings.HasPrefix(r.URL.Path, Path+"/"):
			guarded.ServeHTTP(w, r)
		default:
			api.ServeHTTP(w, r)
		}
	}), nil
}

// file serves a static file of the page.
func file(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, static, "static/"+name) }
}

// order starts a play: POST {"card","failure"}.
func (c *Console) order(w http.ResponseWriter, r *http.Request) {
	var body struct{ Card, Failure string }
	if !decode(w, r, &body, "expected a card and a failure") {
		return
	}
	chosen, err := c.choose(body.Card, body.Failure)
	if err != nil {
		respond(w, http.StatusUnprocessableEntity, err)
		return
	}
	switch err := c.start(r.Context(), chosen); {
	case errors.Is(err, errBusy):
		respond(w, http.StatusConflict, err)
	case err != nil:
		respond(w, http.StatusServiceUnavailable, err)
	default:
		respond(w, http.StatusAccepted, nil)
	}
}

// respondAsCustomer closes the customer's window: POST {"response"}.
func (c *Console) respondAsCustomer(w http.ResponseWriter, r *http.Request) {
	var body struct{ Response string }
	if !decode(w, r, &body, "expected a response") {
		return
	}
	p, _ := c.latest()
	switch {
	case !slices.Contains([]string{approves, declines, leaves}, body.Response):
		respond(w, http.StatusUnprocessableEntity, fmt.Errorf("a customer cannot respond %q", body.Response))
	case p == nil || !p.closeWindow(body.Response):
		respond(w, http.StatusConflict, errors.New("the bank does not ask"))
	default:
		respond(w, http.StatusAccepted, nil)
	}
}

// decode reads a JSON body, and responds with expected if it is another one.
func decode(w http.ResponseWriter, r *http.Request, body any, expected string) bool {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" {
		respond(w, http.StatusUnsupportedMediaType, errors.New("expected application/json"))
		return false
	}
	decoder := json.NewDecoder(io.LimitReader(r.Body, 1<<10))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(body); err != nil {
		respond(w, http.StatusBadRequest, errors.New(expected))
		return false
	}
	return true
}

// respond writes {} or {"error":…}.
func respond(w http.ResponseWriter, status int, err error) {
	body := map[string]string{}
	if err != nil {
		body["error"] = err.Error()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only if the client is gone
}

// Bounds of a stream.
const (
	// writeTimeout bounds the write of one view.
	writeTimeout = 10 * time.Second

	// heartbeat is shorter than the idle timeout of any proxy.
	heartbeat = 15 * time.Second
)

// stream sends the view each time it changes, as server-sent events. The first is
// sent at once, so that a page loaded during a play shows all of it.
func (c *Console) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	var sent string
	text := ": the console\n\n"
	for {
		play, changed := c.latest()
		if play != nil {
			view, err := play.snapshot()
			if err != nil {
				c.Logger.Warn("console: view not encoded", "error", err)
				return
			}
			if string(view) != sent {
				sent = string(view)
				text += "data: " + sent + "\n\n"
			}
		}
		if text != "" {
			// The response never ends, so each write extends the deadline.
			if err := control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
				return
			}
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
			if err := control.Flush(); err != nil {
				return
			}
		}
		text = ""
		select {
		case <-changed:
		case <-tick.C:
			text = ": still here\n\n"
		case <-r.Context().Done():
			return
		case <-c.done:
			return
		}
	}
}
