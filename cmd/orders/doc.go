// Command orders is the API and everything around it: run `orders help`.
//
// It exits with 0 when all went well, with 1 when something failed or was
// interrupted half way, and with 2 when its command line is wrong. The first
// SIGINT or SIGTERM lets what is under way come to its end, the second does not.
package main
