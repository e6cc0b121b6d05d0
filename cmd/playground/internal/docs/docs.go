package docs

import (
	"bytes"
	"embed"
	"net/http"
)

//go:embed page.html
var page []byte

//go:embed init.js scalar.js.gz
var scripts embed.FS

// policy lets the page use its own server only. Scalar inserts its style sheet inline.
const policy = "default-src 'none'; " +
	"script-src 'self'; " +
	"style-src 'unsafe-inline'; " +
	"img-src 'self' data:; " +
	"connect-src 'self'; " +
	"base-uri 'none'; " +
	"form-action 'none'; " +
	"frame-ancestors 'none'"

// Path is the path of the page.
const Path = "/docs"

// Mount returns a handler that serves the page with its scripts, and the API for any other request.
func Mount(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet:
			api.ServeHTTP(w, r)
		case r.URL.Path == Path:
			WritePage(w, "")
		case r.URL.Path == Path+"/init.js":
			serveScript(w, r, "init.js")
		case r.URL.Path == Path+"/scalar.js":
			w.Header().Set("Content-Encoding", "gzip") // every browser accepts it
			serveScript(w, r, "scalar.js.gz")
		default:
			api.ServeHTTP(w, r)
		}
	})
}

// WritePage writes the page, in which an API key is filled in unless it is empty.
func WritePage(w http.ResponseWriter, apiKey string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", policy)
	content := page
	if apiKey != "" {
		content = bytes.Replace(page, []byte("</head>"), []byte(`<meta name="api-key" content="`+apiKey+`"></head>`), 1)
	}
	_, _ = w.Write(content)
}

func serveScript(w http.ResponseWriter, r *http.Request, name string) {
	w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	http.ServeFileFS(w, r, scripts, name)
}
