// Package metrics provides the metrics of a process to Prometheus. Those about pending work are
// read from the database and cover all processes, so take their maximum, not their sum. Label
// values are constants of the program, never anything that a client sent.
package metrics
