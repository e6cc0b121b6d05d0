// Package tracing sends OpenTelemetry traces to a collector if the environment
// names one; docs/tracing.md shows examples. It uses the hooks of the other packages,
// so none of them imports OpenTelemetry:
//
//   - api.Config.Trace: a span for each request,
//   - idempotency.Config.OnStep: a span for each step of a run,
//   - the Tracer of pgx: a span for each statement or batch,
//   - payments.Config.Transport: a span for each request to the provider,
//   - receipts.Mailer: a span for each mail.
//
// Only the attributes of an allowlist leave the process, see [allowed]. No request
// waits for the export: spans that a collector does not accept in time are dropped.
package tracing
