// Package devservices provides what `orders dev` needs beside the program: it starts the
// database and the stand-in for Stripe if the environment names none, keeps an API key, and
// prints the welcome text. Only commands for development use it.
package devservices
