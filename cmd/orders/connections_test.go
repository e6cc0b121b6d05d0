package main_test

import (
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
)

// A process that may open few files says so at the start, and keeps some of them for the database and the
// provider, so an order is made although idle clients want more connections than it may open.
func TestServe_fewDescriptors(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	self, err := os.Executable()
	require.NoError(t, err)
	shell, err := exec.LookPath("sh")
	require.NoError(t, err)
	p := programtest.StartProgram(t, shell, f.with(programtest.BeProgram+"=1"), "-c", `ulimit -n 128 && exec "$0" serve --shutdown-delay 0`, self)
	address := p.WaitFor(&p.Stderr, `listening.*address"?[=:]"?([0-9.]+:[0-9]+)`)[1]
	require.Regexp(t, `RLIMIT_NOFILE is too low.* limit=128 needed=3064 connections=32`, p.Stderr.String())
	a := &programtest.API{Process: p, Base: "http://" + address, Key: f.apiKey}
	for range 40 { // in two turns, because a client has five seconds to send its request
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		defer conn.Close()
	}
	programtest.RequirePaid(t, a.MustOrder("an-order-with-few-files", programtest.Tea))
	require.NotContains(t, p.Stderr.String(), "too many open files")
	p.Stop()
}
