package embeddedpg

import "errors"

var (
	// ErrNotFound says that there is no usable PostgreSQL on this machine and
	// that none could be fetched. The text of the error that wraps it lists the
	// places tried and the ways out.
	ErrNotFound = errors.New("no PostgreSQL server found")

	// ErrInUse says that another process uses the data folder.
	ErrInUse = errors.New("the data folder is in use by another process")

	// errLocked says that somebody holds the lock.
	errLocked = errors.New("locked")
)
