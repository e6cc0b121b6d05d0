// Package app is what the programs share. It runs the command that a command line selects, reads and checks
// the environment, and assembles the parts of a process: the services that run operations, the API with
// its admin listener, and the work that repeats in the background.
package app
