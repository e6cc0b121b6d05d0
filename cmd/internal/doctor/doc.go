// Package doctor looks at everything that the program needs, before a customer
// does: its configuration, the database, the payment provider, the mail server,
// the clocks of all three, and whether keys wait for somebody. It says in a line
// each what it found and, where that is a fault, what helps.
//
// It changes nothing, charges nobody and sends no mail. It reads the environment
// with package boot and connects as the other commands do, so that what works
// here works there. It prints nothing itself, and no secret is in what it returns.
package doctor
