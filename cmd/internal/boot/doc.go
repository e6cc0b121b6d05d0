// Package boot is what the commands share at start. It reads and validates the
// environment, and creates the logger, the connection pool and the mailer. For dev
// and demo it starts the services that the environment does not name. No other
// package of the program reads these variables.
package boot
