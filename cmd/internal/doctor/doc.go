// Package doctor checks what the program needs: the configuration, the database, the payment
// provider and the mail server. It changes no data, charges no card and sends no mail.
package doctor
