// Package metrics provides the metrics of a process to Prometheus. It is the only
// package that uses Prometheus. The other packages offer callbacks
// ([idempotency.Config].OnStep, [payments.Config].Observe,
// [receipts.Config].Observe, [api.Config].Observer), and the commands set them to
// the methods of a [Metrics].
//
// There are two kinds. Most metrics count in this process what this process does.
// Those about pending work, such as the age of the oldest unfinished key, are read
// from the database by each scrape: they cover all processes, including commands
// that cron starts and that no scrape can reach. Take their max over all processes,
// not their sum.
//
// A label has few values, all of them constants of the program. No label contains a
// key, an id, an address or anything else that a client wrote.
package metrics
