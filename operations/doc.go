// Package operations has what operations of any domain share: registration, decoding, errors,
// stored responses, and the status of a key. examples/credits is one of another domain.
package operations
