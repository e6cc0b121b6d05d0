// Package docscheck parses the Markdown pages of this repository. Its tests check each
// link, each name of a file, make target, variable or test, and each command. It supports
// the parts of Markdown and of the shell that the pages use, and returns an error for
// others.
package docscheck
