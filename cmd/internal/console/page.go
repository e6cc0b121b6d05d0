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
	"strings"
	"time"
)

//go:embed static
var static embed.FS

// Path is where the console is.
const Path = "/console"

// Mount puts the console before an API: what is not the console's goes on to it.
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
	files.HandleFunc("GET "+Path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		err := page.Execute(w, map[string]any{
			"Cards": cards(), "Failures": failures(), "StandIn": c.StandIn != nil, "APIKey": c.APIKey,
		})
		if err != nil {
			c.Logger.Warn("console: the page was not written", "error", err)
		}
	})
	guarded := guard(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/" && r.Method == http.MethodGet: // where the API has nothing
			http.Redirect(w, r, Path, http.StatusFound)
		case r.URL.Path == Path, strings.HasPrefix(r.URL.Path, Path+"/"):
			guarded.ServeHTTP(w, r)
		default:
			api.ServeHTTP(w, r)
		}
	}), nil
}

// file serves one of the page's own.
func file(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, static, "static/"+name) }
}

// order starts a play: POST {"card","failure"}.
func (c *Console) order(w http.ResponseWriter, r *http.Request) {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" {
		answer(w, http.StatusUnsupportedMediaType, errors.New("expected application/json"))
		return
	}
	var wish struct{ Card, Failure string }
	decoder := json.NewDecoder(io.LimitReader(r.Body, 1<<10))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&wish); err != nil {
		answer(w, http.StatusBadRequest, errors.New("expected a card and a failure"))
		return
	}
	chosen, err := c.choose(wish.Card, wish.Failure)
	if err != nil {
		answer(w, http.StatusUnprocessableEntity, err)
		return
	}
	switch err := c.start(r.Context(), chosen); {
	case errors.Is(err, errBusy):
		answer(w, http.StatusConflict, err)
	case err != nil:
		answer(w, http.StatusServiceUnavailable, err)
	default:
		answer(w, http.StatusAccepted, nil)
	}
}

// answer is JSON: {} or {"error":…}.
func answer(w http.ResponseWriter, status int, err error) {
	said := map[string]string{}
	if err != nil {
		said["error"] = err.Error()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(said) // whoever is gone needs no answer
}

// Bounds of a stream.
const (
	// writeTimeout is for a view to reach the browser.
	writeTimeout = 10 * time.Second

	// heartbeat is shorter than any proxy's or system's patience with silence.
	heartbeat = 15 * time.Second
)

// stream sends the view each time it changes, as server-sent events. The first is
// sent at once, so a page that is loaded in the middle of a play misses nothing.
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
				c.Logger.Warn("console: no view", "error", err)
				return
			}
			if string(view) != sent {
				sent = string(view)
				text += "data: " + sent + "\n\n"
			}
		}
		if text != "" {
			// This answer has no end, so its deadline moves along.
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
