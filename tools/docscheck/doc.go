// Package docscheck reads the Markdown pages of this repository: the commands that they
// contain, the output that they show, and their links. Its tests check every page: links
// have a target, the files, make targets, variables and tests that a page names exist, and
// each command is run by a test or listed with a reason.
//
// It supports the parts of Markdown and of the shell that the pages use, and returns an
// error for others.
package docscheck
