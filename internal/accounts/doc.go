// Package accounts stores accounts and their API keys, and authenticates requests. Only
// the SHA-256 of an API key is stored; the key is shown once, when it is created.
package accounts
