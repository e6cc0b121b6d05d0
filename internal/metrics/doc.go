// Package metrics counts and measures what the program does, and shows it to
// Prometheus. It is the only package that knows Prometheus: the others offer a
// function to be told by ([idempotency.Config].Observe, [payments.Config].Observe,
// [receipts.Config].Observe, [api.Config].Observer), and the commands put the
// methods of a [Metrics] there.
//
// There are two kinds. Most count in this process what this process does. The few
// about what is left to do, such as the age of the oldest unfinished key, are read
// from the database when somebody asks, so that they are right whichever process
// is asked, and about commands too that cron starts and nobody can ask. Take their
// max over all processes, not their sum.
//
// A label has few values, all of them words of the program: no key, no id, no
// address of a request and nothing that a client wrote.
package metrics
