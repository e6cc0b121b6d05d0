// Package devservices starts the database and the fake Stripe for `orders dev` and `orders
// demo`, if the environment names none, and keeps an API key.
package devservices
