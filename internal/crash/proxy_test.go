package crash_test

import (
	"context"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// proxy stands between one child and PostgreSQL. It works in lock step, as the
// protocol does: what the child sends until it waits for an answer, then all of
// the answer. Each such round trip is a boundary.
type proxy struct {
	border   *border
	listener net.Listener
	network  string
	address  string // of the server
	sessions sync.WaitGroup

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

// newProxy starts a proxy before the pool's database; it ends with the test.
func newProxy(t testing.TB, b *border, pool *pgxpool.Pool) *proxy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	config := pool.Config().ConnConfig
	p := &proxy{border: b, listener: listener, open: map[net.Conn]bool{}}
	p.network, p.address = pgconn.NetworkAddress(config.Host, config.Port)
	p.sessions.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// url names the database as the child sees it. One connection, so that every
// run has the same round trips: each connection prepares statements of its own.
func (p *proxy) url(pool *pgxpool.Pool) string {
	config := pool.Config().ConnConfig
	mode := strings.ReplaceAll(config.DefaultQueryExecMode.String(), " ", "_")
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(config.User, config.Password),
		Host:     p.listener.Addr().String(),
		Path:     "/" + config.Database,
		RawQuery: "sslmode=disable&pool_max_conns=1&default_query_exec_mode=" + mode,
	}
	return u.String()
}

func (p *proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.sessions.Go(func() { p.serve(conn) })
	}
}

// serve carries one connection.
func (p *proxy) serve(conn net.Conn) {
	defer p.forget(conn)
	if !p.remember(conn) || p.border.isDown(database) {
		return
	}
	server, err := new(net.Dialer).DialContext(context.Background(), p.network, p.address)
	if err != nil {
		return
	}
	defer p.forget(server)
	if !p.remember(server) {
		return
	}
	s := session{
		border:     p.border,
		conn:       conn,
		child:      pgproto3.NewBackend(conn, conn),
		server:     pgproto3.NewFrontend(server, server),
		statements: map[string]string{},
	}
	for ready := s.startUp(); ready; {
		ready = s.roundTrip()
	}
}

// remember notes a connection that close must break.
func (p *proxy) remember(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[conn] = true
	return !p.closed
}

func (p *proxy) forget(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
	_ = conn.Close()
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for conn := range p.open {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.sessions.Wait()
}

// session is one connection through the proxy.
type session struct {
	border     *border
	conn       net.Conn          // to the child
	child      *pgproto3.Backend // the proxy plays the server
	server     *pgproto3.Frontend
	statements map[string]string // what the prepared ones are, for names
}

// startUp opens the session at the server, with whatever proof that asks for.
func (s *session) startUp() bool {
	message, err := s.child.ReceiveStartupMessage()
	for ; err == nil; message, err = s.child.ReceiveStartupMessage() {
		switch message.(type) {
		case *pgproto3.SSLRequest, *pgproto3.GSSEncRequest:
			if _, err := s.conn.Write([]byte{'N'}); err != nil {
				return false
			}
			continue
		}
		break
	}
	if err != nil {
		return false
	}
	s.server.Send(message)
	if _, cancels := message.(*pgproto3.CancelRequest); s.server.Flush() != nil || cancels {
		return false
	}
	for {
		answer, err := s.server.Receive()
		if err != nil {
			return false
		}
		s.child.Send(answer)
		if _, ready := answer.(*pgproto3.ReadyForQuery); ready {
			return s.child.Flush() == nil
		}
		if asksForProof(answer) && !s.prove() {
			return false
		}
	}
}

func asksForProof(message pgproto3.BackendMessage) bool {
	switch message.(type) {
	case *pgproto3.AuthenticationCleartextPassword, *pgproto3.AuthenticationMD5Password,
		*pgproto3.AuthenticationSASL, *pgproto3.AuthenticationSASLContinue:
		return true
	default:
		return false
	}
}

// prove carries the child's password to the server.
func (s *session) prove() bool {
	if s.child.SetAuthType(s.server.GetAuthType()) != nil || s.child.Flush() != nil {
		return false
	}
	proof, err := s.child.Receive()
	if err != nil {
		return false
	}
	s.server.Send(proof)
	return s.server.Flush() == nil
}

// roundTrip carries one question and its answer, and says whether the session
// goes on. Both are held until they are whole: a fault strikes between messages
// of ours, never in the middle of one.
func (s *session) roundTrip() bool {
	name, asked := s.ask()
	if !asked {
		return false
	}
	exchange := exchange{border: s.border, side: database}
	if name != "" {
		exchange = s.border.begin(database, name)
	}
	return exchange.pass(before) &&
		s.server.Flush() == nil &&
		s.answer() &&
		exchange.pass(after) &&
		s.child.Flush() == nil
}

// ask reads what the child sends until it waits, and returns the name of that.
func (s *session) ask() (name string, asked bool) {
	var question question
	for {
		message, err := s.child.Receive()
		if err != nil {
			return "", false
		}
		s.server.Send(message)
		switch m := message.(type) {
		case *pgproto3.Parse:
			s.statements[m.Name] = summary(m.Query)
			question.prepares = append(question.prepares, s.statements[m.Name])
		case *pgproto3.Bind:
			question.executes = append(question.executes, s.statements[m.PreparedStatement])
		case *pgproto3.Query:
			question.executes = append(question.executes, summary(m.String))
			return question.name(), true
		case *pgproto3.Sync:
			return question.name(), true
		case *pgproto3.Terminate:
			_ = s.server.Flush()
			return "", false
		}
	}
}

// answer reads what the server answers, until it is ready for the next question.
func (s *session) answer() bool {
	for {
		message, err := s.server.Receive()
		if err != nil {
			_ = s.child.Flush() // its last words, when it ended the session
			return false
		}
		s.child.Send(message)
		if _, ready := message.(*pgproto3.ReadyForQuery); ready {
			return true
		}
	}
}
