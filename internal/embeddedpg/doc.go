// Package embeddedpg starts a private PostgreSQL server for `orders dev`,
// `orders demo` and the tests, so that a clone of this repository runs without
// installing or configuring a database.
//
// It uses the server programs found on the machine and otherwise fetches a
// bundle of them with npm, once. The server
//
//   - listens on 127.0.0.1 only, on a free port, and requires a random password,
//     which is in a file that only the user of this process can read: other users
//     of the machine can reach the port;
//   - is for a developer's machine and its tests, never for production;
//   - ends with the process that started it, even when that is killed;
//   - runs as nobody when started by root, since PostgreSQL refuses root;
//   - keeps its data in a folder that is locked while it is in use, and removed
//     afterwards unless the caller asked for kept data.
//
// The package knows nothing of orders, schemas or tests, imports no other
// package of this module and reads no setting of ours from the environment. It
// works on Linux and macOS.
package embeddedpg
