// Package devservices starts the database and the stand-in for Stripe if the environment
// names none, for commands that are used in development only.
package devservices
