package api_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Location survives a proxy that decodes the path, as nginx with a URI in proxy_pass and Apache do.
func TestLocation_decodingProxy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, key := range []string{
		"order/2026/the-first", "order%2F2026-the-first", "100%-of-the-orders", "../../../etc/passwd", "order//of/two/slashes",
		"order?of=a-question", "order#of-a-fragment", "~order-with-a-tilde", "a-plain-key-of-this-test",
	} {
		accepted := f.create(t, key, orderBody(), prefer("respond-async"))
		require.Equal(t, http.StatusAccepted, accepted.status, key)
		location := accepted.header.Get("Location")
		decoded, err := url.PathUnescape(location)
		require.NoError(t, err)
		require.Equal(t, location, decoded, "nothing to escape")
		require.False(t, strings.Contains(strings.TrimPrefix(location, "/v1/idempotency-keys/"), "/"), location)
		require.EqualValues(t, key, f.get(t, location).keyStatus(t).Key)
		require.EqualValues(t, key, f.get(t, keyPath(key)).keyStatus(t).Key, "the key itself")
	}
}
