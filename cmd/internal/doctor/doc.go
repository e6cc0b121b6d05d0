// Package doctor checks at once what the program needs: the configuration, the
// database with the checks that every command runs at its start, the payment
// provider, the mail server, and the clocks. The checks change no data, charge no card
// and send no mail. The results contain no secrets.
package doctor
