// Package tracing sends OpenTelemetry traces to a collector, if the environment
// names one; docs/tracing.md shows an example. It uses the hooks of the other
// packages, so none of them imports OpenTelemetry:
//
//   - api.Config.Trace: a span for each request,
//   - idempotency.Config.OnStep: a span for each step of a run,
//   - the Tracer of pgx: spans for statements,
//   - payments.Config.Transport: spans for requests to the provider,
//   - receipts.Mailer: a span for each mail.
//
// Only attributes of an allowlist leave the process, see [allowed]. Requests do not
// wait for the export: spans that a collector does not accept in time are dropped.
package tracing
