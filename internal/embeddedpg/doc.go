// Package embeddedpg starts a private PostgreSQL server for development and tests, on Linux and
// macOS. It requires a random password, because other users of the machine can reach it, and
// ends with the process that started it, even if that is killed.
package embeddedpg
