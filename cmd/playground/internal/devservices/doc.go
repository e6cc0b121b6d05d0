// Package devservices starts the database and the fake Stripe of `playground run`, if the environment
// names none, migrates the database, and keeps an API key.
package devservices
