// Package httpjson reads and writes the JSON of the API for any operation: it decodes and checks a
// request's members, encodes resources, lists and problem documents, and has the errors that api turns
// into problems.
package httpjson
