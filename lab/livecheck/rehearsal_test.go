package livecheck

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"
)

// rehearse compares with the fake, which then responds as late as Stripe does over the internet, and
// refuses more than Stripe's 25 requests a second.
func rehearse(ctx context.Context, out io.Writer) int {
	fake := newFake()
	var second, count atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if now := time.Now().Unix(); second.Swap(now) != now {
			count.Store(0)
		}
		<-time.After(300*time.Millisecond + rand.N(500*time.Millisecond))
		if count.Add(1) > 25 {
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"error": {"type": "invalid_request_error", "code": "rate_limit"}}`)
			return
		}
		fake.ServeHTTP(w, r)
	}))
	defer server.Close()
	return comparison{key: testKey, url: server.URL, pace: 100 * time.Millisecond, out: out}.run(ctx, checks())
}
