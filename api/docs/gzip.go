package docs

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// gzipFile serves content gzipped or decompressed, each form with its own ETag.
type gzipFile struct {
	contentType string
	gzipped     []byte
	gzippedTag  string
	plain       func() (http.Handler, error) // decompresses once
}

// Document serves content, compressed for clients that accept gzip.
func Document(contentType string, content []byte) http.Handler {
	var gzipped bytes.Buffer
	writer := gzip.NewWriter(&gzipped)
	_, _ = writer.Write(content) // a buffer does not fail
	_ = writer.Close()
	file := newGzipFile(contentType, gzipped.Bytes())
	file.plain = func() (http.Handler, error) { return staticFile(contentType, content), nil }
	return file
}

func newGzipFile(contentType string, gzipped []byte) gzipFile {
	return gzipFile{
		contentType: contentType,
		gzipped:     gzipped,
		gzippedTag:  etag(gzipped),
		plain: sync.OnceValues(func() (http.Handler, error) {
			content, err := unpack(gzipped)
			if err != nil {
				return nil, err
			}
			return staticFile(contentType, content), nil
		}),
	}
}

// ServeHTTP responds with the form that the client accepts.
func (p gzipFile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept-Encoding")
	if acceptsGzip(r.Header) {
		w.Header().Set("Content-Encoding", "gzip")
		serve(w, r, p.contentType, p.gzippedTag, p.gzipped)
		return
	}
	handler, err := p.plain()
	if err != nil { // impossible for the embedded file: a test decompresses it
		http.Error(w, "the file is damaged", http.StatusInternalServerError)
		return
	}
	handler.ServeHTTP(w, r)
}

func unpack(gzipped []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(gzipped))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}

// acceptsGzip reports whether Accept-Encoding names gzip (RFC 9110, 12.5.3). It ignores
// "*".
func acceptsGzip(header http.Header) bool {
	for _, value := range header.Values("Accept-Encoding") {
		for _, coding := range strings.Split(value, ",") {
			name, weight, weighted := strings.Cut(coding, ";")
			if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
				continue
			}
			if !weighted {
				return true
			}
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(weight), "q="), 64)
			return err == nil && q > 0
		}
	}
	return false
}
