package embeddedpg

import "errors"

var (
	// ErrNotFound means that there is no usable PostgreSQL and none could be
	// downloaded. The error's text lists the places and the remedies.
	ErrNotFound = errors.New("no PostgreSQL server found")

	// ErrInUse means that another process uses the data folder.
	ErrInUse = errors.New("the data folder is in use by another process")

	errLocked = errors.New("locked")
)
