package story_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments"
)

const module = "example.com/orders-api/"

// trace has the files and the calls between packages on the stacks of a request's effects.
type trace struct {
	mu    sync.Mutex
	files []string
	calls map[[2]string]bool // caller and callee, the names of packages
}

// record adds the stack. The hooks of package metrics are its last call, because they have no effect.
func (t *trace) record(hook string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	stack := make([]uintptr, 200)
	frames := runtime.CallersFrames(stack[:runtime.Callers(2, stack)])
	callee := hook
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		name, ours := strings.CutPrefix(frame.Function, module)
		if !ours || strings.HasPrefix(name, "lab/") {
			continue
		}
		folder := filepath.ToSlash(filepath.Dir(name)) + "/"
		caller, _, _ := strings.Cut(strings.TrimPrefix(name, strings.TrimPrefix(folder, "./")), ".")
		caller = strings.TrimPrefix(folder, "./") + caller
		if file := caller + "/" + filepath.Base(frame.File); !slices.Contains(t.files, file) {
			t.files = append(t.files, file)
		}
		if callee != "" && callee != caller {
			t.calls[[2]string{caller, callee}] = true
		}
		callee = caller
	}
}

func (t *trace) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	t.record("")
	return ctx
}

func (t *trace) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	t.record("")
	return ctx
}

func (*trace) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (*trace) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*trace) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (t *trace) RoundTrip(r *http.Request) (*http.Response, error) {
	t.record("")
	return new(http.Transport).RoundTrip(r)
}

// body and response record when a request is read and answered.
type body struct {
	io.Reader
	*trace
}

func (b body) Read(p []byte) (int, error) {
	b.record("")
	return b.Reader.Read(p)
}

type response struct {
	*httptest.ResponseRecorder
	*trace
}

func (r response) Write(p []byte) (int, error) {
	r.record("")
	return r.ResponseRecorder.Write(p)
}

// The tour of the code lists each file that a paid order passes, and marks each call against the import order.
func TestPath(t *testing.T) {
	t.Parallel()
	const metrics, maxFiles, maxClimbs = "internal/metrics", 28, 7
	passed := &trace{calls: map[[2]string]bool{}}
	shop := orderstest.New(t, orderstest.Options{
		Pool: idempotencytest.NewPool(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = passed }),
		Payments: payments.Config{
			Transport: admission.SuspendDuring(passed),
			Observe:   func(payments.HTTPAttempt) { passed.record(metrics) },
		},
	})
	router, apiKey := shop.API(t, api.Config{
		OnRequest: func(string, string, int, time.Duration, string) { passed.record(metrics) },
	})
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/orders", body{strings.NewReader(programtest.Tea), passed})
	request.Header = http.Header{"Authorization": {"Bearer " + apiKey}, "Content-Type": {"application/json"}, "Idempotency-Key": {key}}
	answer := response{httptest.NewRecorder(), passed}
	passed.files, passed.calls = nil, map[[2]string]bool{}
	router.ServeHTTP(answer, request)
	require.Equal(t, http.StatusCreated, answer.Code, answer.Body)

	text, err := os.ReadFile("../../docs/code-tour.md")
	require.NoError(t, err)
	_, listed, found := strings.Cut(string(text), "<!-- path:begin -->")
	require.True(t, found)
	listed, _, found = strings.Cut(listed, "<!-- path:end -->")
	require.True(t, found)
	var files []string
	for _, link := range regexp.MustCompile(`\| \[\S+\]\(\.\./(\S+)\) \|`).FindAllStringSubmatch(listed, -1) {
		files = append(files, link[1])
	}
	require.LessOrEqual(t, len(files), maxFiles)
	for _, file := range append(passed.files, metrics+"/metrics.go") {
		require.Contains(t, files, file)
	}
	require.LessOrEqual(t, strings.Count(listed, "; ↑ ")+strings.Count(listed, "called ↑ "), maxClimbs)
	for call := range passed.calls {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+call[1]).Output()
		require.NoError(t, err)
		if slices.Contains(strings.Fields(string(out)), module+call[0]) { // against the import order
			require.Regexp(t, `\.\./`+call[0]+`/\S+\) \|.*↑`, listed, "%s calls %s", call[0], call[1])
		}
	}
}
