package idempotency

import "context"

// Tracer follows the work of an [Engine], for those who want to see in one
// picture what became of a request. It is a seam: the package knows no tracing
// library, and nothing that a tracer does changes what becomes of the request.
// Its methods are called by many goroutines at once.
type Tracer interface {
	// Start begins a span inside of that of ctx, if there is one. The work runs
	// under the context that it returns, which is also what End gets.
	Start(ctx context.Context, span Span) context.Context

	// End ends the span of ctx. The result says of which key it was, and from
	// where to where it went; err is why it went no further.
	End(ctx context.Context, result Result, err error)
}

// Span says what a piece of work is.
type Span struct {
	Kind SpanKind
	Name string // the operation of a run, the recovery point that a step starts from
}

// SpanKind says which piece of the engine's work a span is.
type SpanKind string

const (
	// RunSpan is all that is done for one request, or to resume one.
	RunSpan SpanKind = "run"

	// StepSpan is one step: the foreign call and what it takes to record it.
	StepSpan SpanKind = "step"

	// TransactionSpan is one try at the transaction of a step.
	TransactionSpan SpanKind = "transaction"
)

// traced does a piece of work as a span. Its results are named because a panic
// ends the span too.
func (e *Engine) traced(ctx context.Context, span Span, work func(context.Context) (Result, error)) (result Result, err error) {
	if e.tracer == nil {
		return work(ctx)
	}
	ctx = e.tracer.Start(ctx, span)
	err = errPanicked
	defer func() { e.tracer.End(ctx, result, err) }()
	result, err = work(ctx)
	return result, err
}

// traced does a part of a run as a span.
func (x *execution) traced(ctx context.Context, span Span, work func(context.Context) error) error {
	if x.engine.tracer == nil {
		return work(ctx)
	}
	from := x.point
	_, err := x.engine.traced(ctx, span, func(ctx context.Context) (Result, error) {
		err := work(ctx)
		result := x.result()
		result.From = from
		return result, err
	})
	return err
}
