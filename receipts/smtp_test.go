package receipts_test

import (
	"crypto/tls"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/receipts"
)

func newSMTP(t *testing.T, url string) *receipts.SMTP {
	t.Helper()
	mailer, err := receipts.NewSMTP(url, "shop.example.com")
	require.NoError(t, err)
	return mailer
}

func TestSMTP_encryption(t *testing.T) {
	t.Parallel()
	const elsewhere = "0.0.0.0" // loopback, but the client treats it as another machine
	certificate, roots := newCertificate(t)
	offer := []tls.Certificate{certificate}
	for _, test := range []struct {
		name      string
		url       string // %s is the port
		script    script
		trusted   bool // the client trusts the certificate's issuer
		failure   string
		encrypted bool
		login     string
	}{
		{name: "no offer, no login", url: "smtp://" + elsewhere + ":%s"},
		{name: "offer is accepted", url: "smtp://" + elsewhere + ":%s", script: script{certs: offer}, encrypted: true},
		{name: "login on this machine needs no encryption", url: "smtp://shop:s3cret@127.0.0.1:%s", script: script{password: "s3cret"}, login: "shop"},
		{name: "login on this machine, encrypted", url: "smtp://shop:s3cret@127.0.0.1:%s", script: script{password: "s3cret", certs: offer}, encrypted: true, login: "shop"},
		{name: "login elsewhere, invalid certificate", url: "smtp://shop:s3cret@" + elsewhere + ":%s", script: script{password: "s3cret", certs: offer}, failure: "certificate"},
		{name: "login elsewhere, valid certificate", url: "smtp://shop:s3cret@" + elsewhere + ":%s", script: script{password: "s3cret", certs: offer}, trusted: true, encrypted: true, login: "shop"},
		{name: "smtps, invalid certificate", url: "smtps://127.0.0.1:%s", script: script{certs: offer, smtps: true}, failure: "certificate"},
		{name: "smtps, valid certificate", url: "smtps://shop:s3cret@127.0.0.1:%s", script: script{password: "s3cret", certs: offer, smtps: true}, trusted: true, encrypted: true, login: "shop"},
		{name: "smtps, login elsewhere", url: "smtps://shop:s3cret@" + elsewhere + ":%s", script: script{password: "s3cret", certs: offer, smtps: true}, trusted: true, encrypted: true, login: "shop"},
		{name: "login at a mapped loopback address", url: "smtp://shop:s3cret@[::ffff:127.0.0.1]:%s", script: script{password: "s3cret"}, login: "shop"},
		{name: "smtps at a mapped address, valid certificate", url: "smtps://shop:s3cret@[::ffff:127.0.0.1]:%s", script: script{password: "s3cret", certs: offer, smtps: true}, trusted: true, encrypted: true, login: "shop"},
		{name: "smtps at a mapped address, invalid certificate", url: "smtps://[::ffff:127.0.0.1]:%s", script: script{certs: offer, smtps: true}, failure: "certificate"},
		{name: "wrong password", url: "smtp://shop:guess@127.0.0.1:%s", script: script{password: "s3cret"}, failure: "535"},
		{name: "server without login", url: "smtp://shop:s3cret@127.0.0.1:%s", failure: "AUTH"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := newMailServer(t, test.script)
			mailer := newSMTP(t, fmt.Sprintf(test.url, server.port))
			if test.trusted {
				mailer.Trust(roots)
			}
			err := mailer.Send(t.Context(), uuid.Nil, receipts.NewTestMessage(t, "Mug"))
			if test.failure != "" {
				require.ErrorContains(t, err, test.failure)
				require.NotContains(t, err.Error(), "s3cret")
				require.NotContains(t, err.Error(), "guess")
				require.NotErrorIs(t, err, jobs.ErrPermanent, "to be fixed in the configuration")
				require.Empty(t, server.mails())
				return
			}
			require.NoError(t, err)
			require.Len(t, server.mails(), 1)
			require.Equal(t, test.encrypted, server.mails()[0].tls)
			require.Equal(t, test.login, server.mails()[0].login)
		})
	}
}

func TestNewSMTP_url(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{ // the mailer's String; "" if invalid
		"smtp://mail.example.com":                      "smtp://mail.example.com:587",
		"smtps://mail.example.com/":                    "smtps://mail.example.com:465",
		"smtp://shop:s3cret@mail.example.com:2525":     "smtp://mail.example.com:2525",
		"smtp://shop:s3cret%2F%40@mail.example.com:25": "smtp://mail.example.com:25",
		"smtp://[::1]:1025":                            "smtp://[::1]:1025",
		"smtps://shop:s3cret@[2001:db8::1]":            "smtps://[2001:db8::1]:465",
		"smtp://[fe80::1%25eth0]:25":                   "smtp://[fe80::1%25eth0]:25",
		"smtp://::1:25":                                "",
		"smtp://[fe80::1%eth0]:25":                     "",
		"":                                             "",
		"mail.example.com:25":                          "",
		"https://shop:s3cret@mail.example.com":         "",
		"smtp://:25":                                   "",
		"smtp://shop:s3cret@mail.example.com:70000":    "",
		"smtp://mail.example.com:0":                    "",
		"smtp://shop@mail.example.com":                 "",
		"smtp://:s3cret@mail.example.com":              "",
		"smtp://shop:s3cret@mail.example.com?tls=off":  "",
		"smtp://shop:s3cret@mail.example.com/inbox":    "",
		"smtp://shop:s3cret/@mail.example.com:25":      "",
		"smtp://shop:s3cret%zz@mail.example.com:25":    "",
		"smtp://shop:s3cret@mail.example.com\n":        "",
	} {
		mailer, err := receipts.NewSMTP(url, "shop.example.com")
		if want == "" {
			require.Error(t, err, url)
			require.NotContains(t, err.Error(), "s3cret")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, mailer.String())
		require.NotContains(t, fmt.Sprintf("%v %+v %#v", mailer, mailer, mailer), "s3cret")
	}
}

// An address of IPv6 keeps its brackets and its zone. The host of this test may lack IPv6, so nothing listens there.
func TestSMTP_addressOfIPv6(t *testing.T) {
	t.Parallel()
	for url, dialled := range map[string]string{
		"smtp://[::1]:1":                     "[::1]:1",
		"smtps://shop:s3cret@[::1]:1":        "[::1]:1",
		"smtp://[fe80::1%25none]:1":          "[fe80::1%none]:1",
		"smtp://shop:s3cret@[::1%25none]:1":  "[::1%none]:1",
		"smtps://shop:s3cret@[::1%25none]:1": "[::1%none]:1",
	} {
		require.ErrorContains(t, newSMTP(t, url).Check(t.Context()), "dial tcp "+dialled+": ", url)
	}
}
