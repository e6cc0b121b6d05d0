// Package doctor checks at once what the program needs: the configuration, the database
// as every command at its start, its clock, the payment provider and the mail server.
// It changes no data, charges no card and sends no mail. Results contain no secrets.
package doctor
