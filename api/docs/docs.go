package docs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"go.yaml.in/yaml/v3"
)

//go:embed page.html
var pageHTML []byte

//go:embed init.js
var initJS []byte

//go:embed scalar.js.gz
var scalarGzip []byte

//go:embed diagrams/*.svg
var diagrams embed.FS

const javaScript = "text/javascript; charset=utf-8"

// policy lets the page use its own server only. Scalar inserts its style sheet inline.
const policy = "default-src 'none'; " +
	"script-src 'self'; " +
	"style-src 'unsafe-inline'; " +
	"img-src 'self' data:; " +
	"connect-src 'self'; " +
	"base-uri 'none'; " +
	"form-action 'none'; " +
	"frame-ancestors 'none'"

// Routes registers the contract, its workflows, and /docs with its scripts and diagrams, which
// the first request prepares, because this would slow down the start.
func Routes(r chi.Router, contract, workflows []byte) {
	r.Get("/openapi.yaml", serve("application/yaml", plain(contract)))
	r.Get("/openapi.json", serve("application/json", func() []byte { return asJSON(contract) }))
	r.Get("/orders.arazzo.yaml", serve("application/yaml", plain(workflows)))
	r.Get("/docs", serve("text/html; charset=utf-8", plain(pageHTML)))

	files := map[string]http.HandlerFunc{
		"init.js":   serve(javaScript, plain(initJS)),
		"scalar.js": serveForms(javaScript, func() (unchanged, gzipped form) { return newForm(decompressScalar()), newForm(scalarGzip) }),
	}
	drawings, _ := fs.Glob(diagrams, "diagrams/*") // the pattern is valid
	for _, name := range drawings {
		drawing, _ := diagrams.ReadFile(name) // it is embedded
		files[path.Base(name)] = serve("image/svg+xml", plain(drawing))
	}
	names := strings.ReplaceAll(strings.Join(slices.Sorted(maps.Keys(files)), "|"), ".", `\.`)
	r.Get("/docs/{file:("+names+")}", func(w http.ResponseWriter, r *http.Request) {
		files[chi.URLParam(r, "file")](w, r)
	})
}

func plain(content []byte) func() []byte { return func() []byte { return content } }

func asJSON(contract []byte) []byte {
	var value any
	_ = yaml.Unmarshal(contract, &value) // valid, see the tests
	content, _ := json.Marshal(value)
	return content
}

func decompressScalar() []byte {
	reader, _ := gzip.NewReader(bytes.NewReader(scalarGzip)) // valid, see the tests
	content, _ := io.ReadAll(reader)
	return content
}

type form struct {
	content []byte
	tag     string
}

func newForm(content []byte) form {
	sum := sha256.Sum256(content)
	return form{content, `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
}

// acceptsGzip matches an Accept-Encoding with gzip and a weight above 0 (RFC 9110, 12.5.3).
var acceptsGzip = regexp.MustCompile(`(?i)(^|,)\s*gzip\s*($|,|;\s*q=(1|0\.\d*[1-9]))`)

func serve(contentType string, content func() []byte) http.HandlerFunc {
	return serveForms(contentType, func() (unchanged, gzipped form) {
		whole := content()
		var compressed bytes.Buffer
		writer := gzip.NewWriter(&compressed)
		_, _ = writer.Write(whole)
		_ = writer.Close()
		return newForm(whole), newForm(compressed.Bytes())
	})
}

// serveForms responds with the form that the client accepts, or with 304 if it is cached.
func serveForms(contentType string, prepare func() (unchanged, gzipped form)) http.HandlerFunc {
	forms := sync.OnceValues(prepare)
	return func(w http.ResponseWriter, r *http.Request) {
		accepted, gzipped := forms()
		header := w.Header()
		header.Set("Vary", "Accept-Encoding")
		if acceptsGzip.MatchString(strings.Join(r.Header.Values("Accept-Encoding"), ",")) {
			header.Set("Content-Encoding", "gzip")
			accepted = gzipped
		}
		header.Set("Content-Type", contentType)
		header.Set("Content-Security-Policy", policy)
		// clients revalidate with the ETag, because the paths have no version
		header.Set("Cache-Control", "no-cache")
		header.Set("ETag", accepted.tag)
		// The contract has neither ranges (206, 416) nor 412.
		get := r.Clone(r.Context())
		get.Header.Del("Range")
		get.Header.Del("If-Match")
		http.ServeContent(noRanges{w}, get, "", time.Time{}, bytes.NewReader(accepted.content))
	}
}

// noRanges replaces the Accept-Ranges header of http.ServeContent.
type noRanges struct{ http.ResponseWriter }

func (w noRanges) WriteHeader(status int) {
	w.Header().Set("Accept-Ranges", "none")
	w.ResponseWriter.WriteHeader(status)
}
