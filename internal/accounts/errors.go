package accounts

import "errors"

var (
	// ErrUnauthorized means that an API key is malformed, unknown or revoked.
	ErrUnauthorized = errors.New("the API key is not valid")

	// ErrInvalidName rejects the name of an account.
	ErrInvalidName = errors.New("an account's name has 1 to 200 characters")

	// ErrAccountNotFound means that no account has this id.
	ErrAccountNotFound = errors.New("there is no such account")

	// ErrKeyNotFound means that the account has no API key with this id or prefix.
	ErrKeyNotFound = errors.New("the account has no such API key")

	// ErrAmbiguousPrefix means that a prefix does not identify one API key.
	ErrAmbiguousPrefix = errors.New("several API keys of the account have this prefix: use the id")
)
