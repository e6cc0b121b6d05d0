// Package tracing sends OpenTelemetry traces to a collector, if the environment
// names one; docs/tracing.md shows what they look like. It fills seams that the
// other packages have for it, so that none of them knows OpenTelemetry:
//
//   - api.Config.Trace: a span for each request,
//   - idempotency.Config.Tracer: spans for runs, their steps and transactions,
//   - the Tracer of pgx: spans for what goes to the database,
//   - payments.Config.Transport: spans for what goes to the provider,
//   - receipts.Mailer: a span for each mail.
//
// What leaves the process is what a list allows, see [allowed]. Nothing of it is
// waited for: spans that a collector does not take in time are dropped.
package tracing
