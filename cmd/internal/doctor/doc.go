// Package doctor checks everything that the program needs: its configuration, the
// database, the payment provider, the mail server, their clocks, and whether keys
// wait for an operator. Each check returns one line and, if it failed, a remedy.
//
// The checks change no data, charge no card and send no mail. They read the
// environment with package boot and connect like the other commands. The package
// prints nothing, and its results contain no secrets.
package doctor
