// Package embeddedpg starts a private PostgreSQL server for development and tests, never
// for production, on Linux and macOS. It requires a random password, because other users of
// the machine can reach it, and ends with the process that started it, even if that is
// killed. Its data is deleted unless a folder is named.
package embeddedpg
