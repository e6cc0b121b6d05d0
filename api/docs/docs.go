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
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"

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

// Routes registers the contract, the document for operators, the workflows, and /docs with its
// scripts and diagrams.
func Routes(r chi.Router, contract, service, workflows []byte) {
	r.Get("/openapi.yaml", serve("application/yaml", func() []byte { return contract }))
	r.Get("/openapi.json", serve("application/json", func() []byte { return asJSON(contract) }))
	r.Get("/openapi.service.yaml", serve("application/yaml", func() []byte { return service }))
	r.Get("/orders.arazzo.yaml", serve("application/yaml", func() []byte { return workflows }))
	r.Get("/docs", serve("text/html; charset=utf-8", func() []byte { return pageHTML }))

	r.Get("/docs/init.js", serve(javaScript, func() []byte { return initJS }))
	r.Get("/docs/scalar.js", serve(javaScript, decompressScalar))
	drawings, _ := fs.Glob(diagrams, "diagrams/*") // the pattern is valid
	for _, name := range drawings {
		drawing, _ := diagrams.ReadFile(name) // it is embedded
		r.Get("/docs/"+path.Base(name), serve("image/svg+xml", func() []byte { return drawing }))
	}
}

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

// representation is a document as the server sends it, either unchanged or compressed with gzip. The
// two have different ETags, as RFC 9110 requires (8.8.3.3).
type representation struct {
	content []byte
	etag    string
}

func newRepresentation(content []byte) representation {
	sum := sha256.Sum256(content)
	return representation{content, `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
}

func compress(content []byte) []byte {
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, _ = writer.Write(content)
	_ = writer.Close()
	return packed.Bytes()
}

// acceptsGzip matches an Accept-Encoding with gzip and a weight above 0 (RFC 9110, 12.5.3).
var acceptsGzip = regexp.MustCompile(`(?i)(^|,)\s*gzip\s*($|,|;\s*q=(1|0\.\d*[1-9]))`)

// serve responds with a document, compressed if the client accepts gzip, or with 304 if the client's
// copy is current. The document is prepared at its first request, because compressing all of them
// would delay the start.
func serve(contentType string, content func() []byte) http.HandlerFunc {
	representations := sync.OnceValues(func() (unchanged, compressed representation) {
		document := content()
		return newRepresentation(document), newRepresentation(compress(document))
	})
	return func(w http.ResponseWriter, r *http.Request) {
		selected, compressed := representations()
		header := w.Header()
		header.Set("Vary", "Accept-Encoding")
		if acceptsGzip.MatchString(strings.Join(r.Header.Values("Accept-Encoding"), ",")) {
			header.Set("Content-Encoding", "gzip")
			selected = compressed
		}
		header.Set("Content-Type", contentType)
		header.Set("Content-Security-Policy", policy)
		// Clients revalidate with the ETag, because the paths have no version.
		header.Set("Cache-Control", "no-cache")
		header.Set("ETag", selected.etag)
		header.Set("Accept-Ranges", "none")
		if strings.Contains(strings.Join(r.Header.Values("If-None-Match"), ","), selected.etag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		header.Set("Content-Length", strconv.Itoa(len(selected.content)))
		// Without the reader's WriteTo, io.Copy writes in parts, so a slow client holds only one of them.
		_, _ = io.Copy(w, struct{ io.Reader }{bytes.NewReader(selected.content)})
	}
}
