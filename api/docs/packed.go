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

// packed serves content that is kept gzipped: as it is to the many clients that
// take it so, unpacked to the others. The two forms have tags of their own.
type packed struct {
	contentType string
	gzipped     []byte
	gzippedTag  string
	plain       func() (http.Handler, error) // unpacks once, when first asked
}

func newPacked(contentType string, gzipped []byte) packed {
	return packed{
		contentType: contentType,
		gzipped:     gzipped,
		gzippedTag:  etag(gzipped),
		plain: sync.OnceValues(func() (http.Handler, error) {
			content, err := unpack(gzipped)
			if err != nil {
				return nil, err
			}
			return plain(contentType, content), nil
		}),
	}
}

// ServeHTTP answers with the form that the client accepts.
func (p packed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept-Encoding")
	if acceptsGzip(r.Header) {
		w.Header().Set("Content-Encoding", "gzip")
		serve(w, r, p.contentType, p.gzippedTag, p.gzipped)
		return
	}
	handler, err := p.plain()
	if err != nil { // cannot happen to the embedded file: a test unpacks it
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

// acceptsGzip reads Accept-Encoding (RFC 9110, 12.5.3). A client that does not
// name gzip gets plain bytes, which all understand, so "*" needs no reading.
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
