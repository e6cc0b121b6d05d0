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

// databaseProxy is a proxy between one child and PostgreSQL.
type databaseProxy struct {
	interceptor *interceptor
	listener    net.Listener
	network     string
	address     string // of the server
	pool        *pgxpool.Pool
	sessions    sync.WaitGroup

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

func newDatabaseProxy(t testing.TB, i *interceptor, pool *pgxpool.Pool) *databaseProxy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	config := pool.Config().ConnConfig
	p := &databaseProxy{interceptor: i, listener: listener, pool: pool, open: map[net.Conn]bool{}}
	p.network, p.address = pgconn.NetworkAddress(config.Host, config.Port)
	p.sessions.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// url is the child's DATABASE_URL. Each connection prepares its own statements, so the
// pool has one: every run makes the same round trips.
func (p *databaseProxy) url(pool *pgxpool.Pool) string {
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

func (p *databaseProxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.sessions.Go(func() { p.serve(conn) })
	}
}

func (p *databaseProxy) serve(conn net.Conn) {
	defer p.closeConn(conn)
	if !p.track(conn) || p.interceptor.isDown(database) {
		return
	}
	server, err := new(net.Dialer).DialContext(context.Background(), p.network, p.address)
	if err != nil {
		return
	}
	defer p.closeConn(server)
	if !p.track(server) {
		return
	}
	s := session{
		interceptor: p.interceptor,
		conn:        conn,
		child:       pgproto3.NewBackend(conn, conn),
		server:      pgproto3.NewFrontend(server, server),
		statements:  map[string]string{},
	}
	for ready := s.startUp(); ready; {
		ready = s.roundTrip()
	}
	// The server may end the session after the child has gone on. Its transaction would then be
	// taken for one that is open during a provider call.
	_ = server.Close()
	_, _ = p.pool.Exec(context.Background(), "SELECT pg_terminate_backend($1, 5000)", s.pid)
}

func (p *databaseProxy) track(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[conn] = true
	return !p.closed
}

func (p *databaseProxy) closeConn(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
	_ = conn.Close()
}

func (p *databaseProxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for conn := range p.open {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.sessions.Wait()
}

type session struct {
	interceptor *interceptor
	conn        net.Conn          // to the child
	child       *pgproto3.Backend // the proxy is the child's server
	server      *pgproto3.Frontend
	pid         int32
	statements  map[string]string // summaries of the prepared statements, by name
}

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
		response, err := s.server.Receive()
		if err != nil {
			return false
		}
		s.child.Send(response)
		switch m := response.(type) {
		case *pgproto3.BackendKeyData:
			s.pid = int32(m.ProcessID)
		case *pgproto3.ReadyForQuery:
			return s.child.Flush() == nil
		}
		if requestsCredentials(response) && !s.forwardCredentials() {
			return false
		}
	}
}

func requestsCredentials(message pgproto3.BackendMessage) bool {
	switch message.(type) {
	case *pgproto3.AuthenticationCleartextPassword, *pgproto3.AuthenticationMD5Password,
		*pgproto3.AuthenticationSASL, *pgproto3.AuthenticationSASLContinue:
		return true
	default:
		return false
	}
}

func (s *session) forwardCredentials() bool {
	if s.child.SetAuthType(s.server.GetAuthType()) != nil || s.child.Flush() != nil {
		return false
	}
	credentials, err := s.child.Receive()
	if err != nil {
		return false
	}
	s.server.Send(credentials)
	return s.server.Flush() == nil
}

// roundTrip forwards one request and its response, each once it is complete, so that a
// fault is triggered between them. It reports whether the session continues.
func (s *session) roundTrip() bool {
	name, complete := s.readRequest()
	if !complete {
		return false
	}
	exchange := exchange{interceptor: s.interceptor, side: database}
	if name != "" {
		exchange = s.interceptor.begin(database, name)
	}
	return exchange.proceed(before) &&
		s.server.Flush() == nil &&
		s.readResponse() &&
		exchange.proceed(after) &&
		s.child.Flush() == nil
}

func (s *session) readRequest() (name string, complete bool) {
	var request request
	for {
		message, err := s.child.Receive()
		if err != nil {
			return "", false
		}
		s.server.Send(message)
		switch m := message.(type) {
		case *pgproto3.Parse:
			s.statements[m.Name] = summary(m.Query)
			request.prepares = append(request.prepares, s.statements[m.Name])
		case *pgproto3.Bind:
			request.executes = append(request.executes, s.statements[m.PreparedStatement])
		case *pgproto3.Query:
			request.executes = append(request.executes, summary(m.String))
			return request.name(), true
		case *pgproto3.Sync:
			return request.name(), true
		case *pgproto3.Terminate:
			_ = s.server.Flush()
			return "", false
		}
	}
}

func (s *session) readResponse() bool {
	for {
		message, err := s.server.Receive()
		if err != nil {
			_ = s.child.Flush() // the error with which the server ended the session
			return false
		}
		s.child.Send(message)
		if _, ready := message.(*pgproto3.ReadyForQuery); ready {
			return true
		}
	}
}
