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

// policy lets the page use its own server only. Scalar inserts its style sheet inline.
// Scripts have no such exception, hence init.js.
const policy = "default-src 'none'; " +
	"script-src 'self'; " +
	"style-src 'unsafe-inline'; " +
	"img-src 'self' data:; " +
	"connect-src 'self'; " +
	"base-uri 'none'; " +
	"form-action 'none'; " +
	"frame-ancestors 'none'"

// Routes registers /docs and its two scripts.
func Routes(r chi.Router) {
	scripts := map[string]http.Handler{
		"init.js":   staticFile(javaScript, initJS),
		"scalar.js": newGzipFile(javaScript, scalarGzip),
	}
	r.Method(http.MethodGet, "/docs", staticFile(html, pageHTML))
	r.Get(`/docs/{file:(init|scalar)\.js}`, func(w http.ResponseWriter, r *http.Request) {
		scripts[chi.URLParam(r, "file")].ServeHTTP(w, r)
	})
}

func staticFile(contentType string, content []byte) http.Handler {
	tag := etag(content)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, contentType, tag, content)
	})
}

// serve responds with content, or with 304 if the client has it cached.
func serve(w http.ResponseWriter, r *http.Request, contentType, tag string, content []byte) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	// clients revalidate with the ETag, because the paths have no version
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", tag)
	// The contract has neither ranges (206, 416) nor 412.
	whole := r.Clone(r.Context())
	for _, name := range []string{"Range", "If-Range", "If-Match"} {
		whole.Header.Del(name)
	}
	http.ServeContent(noRanges{w}, whole, "", time.Time{}, bytes.NewReader(content))
}

// noRanges replaces the Accept-Ranges header of http.ServeContent.
type noRanges struct{ http.ResponseWriter }

func (w noRanges) WriteHeader(status int) {
	w.Header().Set("Accept-Ranges", "none")
	w.ResponseWriter.WriteHeader(status)
}

// etag returns an entity tag, the hash of the content.
func etag(content []byte) string {
	sum := sha256.Sum256(content)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}
