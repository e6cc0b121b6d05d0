// Package setup reads and validates the environment, and creates the logger, the
// connection pools and the mailer. No other package reads these variables.
package setup
