// Package devservices starts a private database and the fake Stripe, unless the environment names others.
// It also migrates the database, and stores an API key for `playground run`.
package devservices
