package program_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

type collector struct {
	t    *testing.T
	url  string
	mu   sync.Mutex
	sent strings.Builder // request bodies
	all  []*tracepb.Span
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{t: t}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	var request collectorpb.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "not a request to export traces", http.StatusBadRequest)
		return
	}
	c.sent.Write(body)
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			c.all = append(c.all, scope.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *collector) raw() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent.String()
}

func (c *collector) spans() []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(c.all), func(a, b *tracepb.Span) int {
		return int(int64(a.GetStartTimeUnixNano()) - int64(b.GetStartTimeUnixNano()))
	})
}

func (c *collector) traces() []string {
	var drawn []string
	spans := c.spans()
	for _, span := range spans {
		if len(span.GetParentSpanId()) == 0 {
			drawn = append(drawn, draw(spans, span, ""))
		}
	}
	return drawn
}

func draw(spans []*tracepb.Span, span *tracepb.Span, indent string) string {
	text := indent + describe(span) + "\n"
	for _, inner := range spans {
		if string(inner.GetTraceId()) == string(span.GetTraceId()) && string(inner.GetParentSpanId()) == string(span.GetSpanId()) {
			text += draw(spans, inner, indent+"  ")
		}
	}
	return text
}

// describe returns a span as one line, without what differs from run to run.
func describe(span *tracepb.Span) string {
	line := span.GetName()
	if from, to := attribute(span, "orders.recovery_point.from"), attribute(span, "orders.recovery_point.to"); from != to {
		line += " to " + to
	}
	if attempt := attribute(span, "orders.attempt"); attempt != "" {
		line += ", attempt " + attempt
	}
	if size := attribute(span, "db.operation.batch.size"); size != "" {
		line += " of " + size
	}
	if status := attribute(span, "http.response.status_code"); status != "" {
		line += ": " + status
	}
	if span.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		line += ", failed"
		if message := span.GetStatus().GetMessage(); message != "" {
			line += ": " + message
		}
	}
	return line
}

func attribute(span *tracepb.Span, name string) string {
	i := slices.IndexFunc(span.GetAttributes(), func(a *commonpb.KeyValue) bool { return a.GetKey() == name })
	if i < 0 {
		return ""
	}
	switch value := span.GetAttributes()[i].GetValue().GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return value.StringValue
	case *commonpb.AnyValue_IntValue:
		return fmt.Sprint(value.IntValue)
	case *commonpb.AnyValue_BoolValue:
		return fmt.Sprint(value.BoolValue)
	default:
		return fmt.Sprintf("%T", value)
	}
}

func (c *collector) requireWellFormed() {
	c.t.Helper()
	spans := c.spans()
	for _, span := range spans {
		parent := string(span.GetParentSpanId())
		require.True(c.t, parent == "" || slices.ContainsFunc(spans, func(s *tracepb.Span) bool {
			return string(s.GetSpanId()) == parent && string(s.GetTraceId()) == string(span.GetTraceId())
		}), span.GetName())
	}
}
