// Package plainjson encodes JSON for responses that no browser reads as HTML.
package plainjson
