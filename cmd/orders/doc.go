// Command orders runs the API and everything around it: see `orders help`.
//
// It exits with 0 on success, with 1 after a failure or an interrupt, and with 2 if
// its command line is invalid or if reconcile could not compare everything. The first
// SIGINT or SIGTERM lets work in progress finish, the second one kills the process.
package main
