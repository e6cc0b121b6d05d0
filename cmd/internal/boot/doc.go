// Package boot is what the commands share at start: it reads the environment,
// checks it as a whole, and makes the logger, the connection pool and the
// pieces built on them. Nothing else in the module reads the environment.
package boot
