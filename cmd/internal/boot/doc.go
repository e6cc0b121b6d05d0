// Package boot is what the commands share at start: it reads the environment,
// checks it as a whole, and makes the logger, the connection pool and the
// pieces built on them; for dev and demo it starts what the environment does not
// name. No other package of the program reads the environment.
package boot
