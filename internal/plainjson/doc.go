// Package plainjson encodes JSON without escaping for HTML.
package plainjson
