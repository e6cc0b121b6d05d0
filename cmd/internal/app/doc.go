// Package app assembles the parts of a process: the services that run operations, the API with
// its admin listener, and the work that repeats in the background.
package app
