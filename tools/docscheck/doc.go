// Package docscheck reads the Markdown pages of this repository as their reader
// does: which commands they tell him to type, what they say will come back, where
// they point. Its tests hold every page to it, so that none can rot: links lead
// somewhere, files, make targets, variables and tests that are named exist, and
// each command has somebody who runs it.
//
// Commands of our own program, and curl lines to it, are run by the tests of
// cmd/orders, which is where the program can be started.
//
// It knows just enough of Markdown and of the shell for pages that are written
// plainly, and says so where one is not. It is imported by tests only.
package docscheck
