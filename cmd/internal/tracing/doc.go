// Package tracing sends OpenTelemetry traces to a collector if the environment names one, see
// docs/tracing.md. It uses hooks of the other packages, which do not import OpenTelemetry.
package tracing
