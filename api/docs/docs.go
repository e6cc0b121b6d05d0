package docs

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
)

//go:embed page.html
var pageHTML []byte

//go:embed init.js
var initJS []byte

//go:embed scalar.js.gz
var scalarGzip []byte

const (
	html       = "text/html; charset=utf-8"
	javaScript = "text/javascript; charset=utf-8"
)

// policy lets the page load from and call its own server only. Scalar writes
// its style sheet into the page, hence 'unsafe-inline' for styles. Scripts have
// no such exception, which is why the start code is a file of its own.
const policy = "default-src 'none'; " +
	"script-src 'self'; " +
	"style-src 'unsafe-inline'; " +
	"img-src 'self' data:; " +
	"connect-src 'self'; " +
	"base-uri 'none'; " +
	"form-action 'none'; " +
	"frame-ancestors 'none'"

// Routes registers the page /docs and its two scripts on r. Other paths below
// /docs keep r's own answer for unknown paths.
func Routes(r chi.Router) {
	scripts := map[string]http.Handler{
		"init.js":   plain(javaScript, initJS),
		"scalar.js": newPacked(javaScript, scalarGzip),
	}
	r.Method(http.MethodGet, "/docs", plain(html, pageHTML))
	r.Get(`/docs/{file:(init|scalar)\.js}`, func(w http.ResponseWriter, r *http.Request) {
		scripts[chi.URLParam(r, "file")].ServeHTTP(w, r)
	})
}

// plain serves content as it is.
func plain(contentType string, content []byte) http.Handler {
	tag := etag(content)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, contentType, tag, content)
	})
}

// serve answers with content, or with 304 to a client that holds it already.
func serve(w http.ResponseWriter, r *http.Request, contentType, tag string, content []byte) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	// The paths carry no version, so ask each time; the tag makes that cheap.
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", tag)
	// Always whole: the contract offers neither parts (206, 416) nor 412.
	whole := r.Clone(r.Context())
	for _, name := range []string{"Range", "If-Range", "If-Match"} {
		whole.Header.Del(name)
	}
	http.ServeContent(w, whole, "", time.Time{}, bytes.NewReader(content))
}

// etag names content by its hash.
func etag(content []byte) string {
	sum := sha256.Sum256(content)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}
