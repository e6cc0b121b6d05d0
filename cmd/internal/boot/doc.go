// Package boot reads and validates the environment, and creates the logger, the
// connection pools and the mailer. For dev and demo it starts missing services. No
// other package reads these variables.
package boot
