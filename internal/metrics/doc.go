// Package metrics provides the metrics of a process to Prometheus. Other packages offer
// callbacks, which the commands set to the methods of a [Metrics].
//
// Most metrics count what this process does. Those about pending work are read from the
// database: they cover all processes, so take their max over all processes, not their
// sum. Label values are constants of the program, never a key, an id, an address or
// anything else that a client sent.
package metrics
