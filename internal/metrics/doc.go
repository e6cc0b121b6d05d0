// Package metrics provides the metrics of a process to Prometheus. Other packages offer
// callbacks, which the commands set to the methods of a [Metrics].
//
// The metrics about pending work are read from the database and cover all processes, so take
// their maximum over the processes, not their sum. Label values are constants of the
// program, never anything that a client sent.
package metrics
