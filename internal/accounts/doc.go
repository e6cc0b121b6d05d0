// Package accounts stores the accounts of the API and their API keys, and
// authenticates requests by API key.
//
// Only the SHA-256 of an API key is stored. A key is shown once, when it is
// created.
package accounts
