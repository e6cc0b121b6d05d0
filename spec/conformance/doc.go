// Command conformance checks an HTTP server against the profile
// spec/idempotent-requests.md. It sends requests only; the server can be written in any
// language. README.md explains the profile file.
package main
