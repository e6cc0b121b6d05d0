// Package measure has what the programs bench and peers measure with: a durable PostgreSQL,
// the CPU times of processes, and a proxy that counts round trips.
package measure
