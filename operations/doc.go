// Package operations has what operations of any domain share: their registration, the
// decoding of requests, errors and stored responses, the status of a key, and what an
// operator does with it. Package orders registers two operations; examples/credits is one of
// another domain.
package operations
