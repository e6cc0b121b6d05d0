package receipts_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/mailtest"
	"example.com/orders-api/receipts"
)

func newSMTP(t *testing.T, url string) *receipts.SMTP {
	t.Helper()
	mailer, err := receipts.NewSMTP(url, "shop.example.com")
	require.NoError(t, err)
	return mailer
}

func port(t *testing.T, server *mailtest.Server) string {
	t.Helper()
	_, port, err := net.SplitHostPort(server.Address)
	require.NoError(t, err)
	return port
}

func TestSMTP_encryption(t *testing.T) {
	t.Parallel()
	const elsewhere = "0.0.0.0" // loopback, but the client treats it as another machine
	certificate, roots := newCertificate(t)
	offer := []tls.Certificate{certificate}
	for _, test := range []struct {
		name      string
		url       string // %s is the port
		script    mailtest.Script
		trusted   bool // the client trusts the certificate's issuer
		failure   string
		encrypted bool
		login     string
	}{
		{name: "no offer, no login", url: "smtp://" + elsewhere + ":%s"},
		{name: "offer is accepted", url: "smtp://" + elsewhere + ":%s", script: mailtest.Script{Certs: offer}, encrypted: true},
		{name: "login on this machine needs no encryption", url: "smtp://shop:s3cret@127.0.0.1:%s", script: mailtest.Script{Password: "s3cret"}, login: "shop"},
		{name: "login on this machine, encrypted", url: "smtp://shop:s3cret@127.0.0.1:%s", script: mailtest.Script{Password: "s3cret", Certs: offer}, encrypted: true, login: "shop"},
		{name: "login elsewhere, invalid certificate", url: "smtp://shop:s3cret@" + elsewhere + ":%s", script: mailtest.Script{Password: "s3cret", Certs: offer}, failure: "certificate"},
		{name: "login elsewhere, valid certificate", url: "smtp://shop:s3cret@" + elsewhere + ":%s", script: mailtest.Script{Password: "s3cret", Certs: offer}, trusted: true, encrypted: true, login: "shop"},
		{name: "smtps, invalid certificate", url: "smtps://127.0.0.1:%s", script: mailtest.Script{Certs: offer, SMTPS: true}, failure: "certificate"},
		{name: "smtps, valid certificate", url: "smtps://shop:s3cret@127.0.0.1:%s", script: mailtest.Script{Password: "s3cret", Certs: offer, SMTPS: true}, trusted: true, encrypted: true, login: "shop"},
		{name: "smtps, login elsewhere", url: "smtps://shop:s3cret@" + elsewhere + ":%s", script: mailtest.Script{Password: "s3cret", Certs: offer, SMTPS: true}, trusted: true, encrypted: true, login: "shop"},
		{name: "login at a mapped loopback address", url: "smtp://shop:s3cret@[::ffff:127.0.0.1]:%s", script: mailtest.Script{Password: "s3cret"}, login: "shop"},
		{name: "smtps at a mapped address, valid certificate", url: "smtps://shop:s3cret@[::ffff:127.0.0.1]:%s", script: mailtest.Script{Password: "s3cret", Certs: offer, SMTPS: true}, trusted: true, encrypted: true, login: "shop"},
		{name: "smtps at a mapped address, invalid certificate", url: "smtps://[::ffff:127.0.0.1]:%s", script: mailtest.Script{Certs: offer, SMTPS: true}, failure: "certificate"},
		{name: "wrong password", url: "smtp://shop:guess@127.0.0.1:%s", script: mailtest.Script{Password: "s3cret"}, failure: "535"},
		{name: "server without login", url: "smtp://shop:s3cret@127.0.0.1:%s", failure: "AUTH"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := mailtest.New(t, test.script)
			mailer := newSMTP(t, fmt.Sprintf(test.url, port(t, server)))
			if test.trusted {
				mailer.Trust(roots)
			}
			err := mailer.Send(t.Context(), uuid.Nil, receipts.NewTestMessage(t, "Mug"))
			if test.failure != "" {
				require.ErrorContains(t, err, test.failure)
				require.NotContains(t, err.Error(), "s3cret")
				require.NotContains(t, err.Error(), "guess")
				require.NotErrorIs(t, err, jobs.ErrPermanent, "to be fixed in the configuration")
				require.Empty(t, server.Mails())
				return
			}
			require.NoError(t, err)
			require.Len(t, server.Mails(), 1)
			require.Equal(t, test.encrypted, server.Mails()[0].TLS)
			require.Equal(t, test.login, server.Mails()[0].Login)
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

// A mail server that stops answering, at any reply, holds a mail no longer than its limit, and cannot fill the
// memory.
func TestSMTP_foreignServer(t *testing.T) {
	t.Parallel()
	for name, endless := range map[string]string{
		"silence":                   "",
		"a line without an end":     "2",
		"a reply without an end":    "250-x\r\n",
		"300 MB in a line":          strings.Repeat("2", 1<<20),
		"300 MB in lines":           strings.Repeat("250-x\r\n", 1<<17),
		"300 MB, but another reply": strings.Repeat("599-x\r\n", 1<<17),
	} {
		for at, reply := range []string{"greeting", "EHLO", "MAIL", "RCPT", "DATA", "content", "QUIT"} {
			t.Run(name+" as reply to "+reply, func(t *testing.T) {
				t.Parallel()
				limit := 10 * time.Second
				switch {
				case len(endless) >= 10:
				case reply == "QUIT": // a slow machine must have sent the mail before
					limit = 3 * time.Second
				default:
					limit = 200 * time.Millisecond
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				start := time.Now()
				err := newSMTP(t, "smtp://"+foreignMailServer(t, at, endless)).Send(ctx, uuid.Nil, receipts.NewTestMessage(t, "Mug"))
				require.Equal(t, reply == "QUIT", err == nil, "the mail is accepted before QUIT: %v", err)
				require.Less(t, time.Since(start), 5*time.Second)
			})
		}
	}
	t.Run("silence instead of TLS", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, newSMTP(t, "smtps://"+foreignMailServer(t, 0, "")).Check(ctx), context.DeadlineExceeded)
	})
}

// foreignMailServer answers as a mail server does until the reply of this number, which has no end.
func foreignMailServer(t *testing.T, at int, endless string) (address string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		received := bufio.NewReader(conn)
		for i, reply := range []string{"220 x", "250 x", "250 x", "250 x", "354 x", "250 x"} {
			if i == at {
				break
			}
			_, _ = io.WriteString(conn, reply+"\r\n")
			for line := ""; line == "" || i == 4 && line != ".\r\n"; {
				if line, err = received.ReadString('\n'); err != nil {
					return
				}
			}
		}
		for sent := 0; err == nil && endless != ""; sent += len(endless) {
			if sent > 300<<20 {
				t.Error("the client has read 300 MB")
				return
			}
			if len(endless) < 10 {
				<-time.After(time.Millisecond)
			}
			_, err = io.WriteString(conn, endless)
		}
		_, _ = io.Copy(io.Discard, received)
	}()
	return listener.Addr().String()
}

// newCertificate is self-signed and valid for 127.0.0.1 and 0.0.0.0. The client treats
// 0.0.0.0 as another machine.
func newCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4zero},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}
