// Package tracing sends OpenTelemetry traces to a collector if the environment names
// one, see docs/tracing.md. It uses hooks of the other packages, so none of them
// imports OpenTelemetry. Only the attributes of an allowlist are exported, see
// [allowed]. No request waits for the export; excess spans are dropped.
package tracing
