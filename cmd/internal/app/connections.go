package app

import (
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	// maxConnections bounds the requests in flight, too, because each needs memory while it waits for the
	// provider. The proxy in front keeps slow and idle clients away (docs/overload.md).
	maxConnections = 1500

	// Each connection may need another one, to the provider. The rest is for the database and for logs.
	descriptorsPerConnection, otherDescriptors = 2, 64

	writeTimeout = 10 * time.Second // a client's time to read a part of a response
)

// connectionLimit returns maxConnections, or what the process may open: a connection to the database
// that fails for want of a descriptor costs more than a client that waits.
func connectionLimit(logger *slog.Logger) int {
	var files syscall.Rlimit
	need := uint64(descriptorsPerConnection*maxConnections + otherDescriptors)
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur >= need {
		return maxConnections
	}
	limit := max(1, (int(files.Cur)-otherDescriptors)/descriptorsPerConnection)
	logger.Warn("RLIMIT_NOFILE is too low, so fewer clients can connect: raise it", "limit", files.Cur, "needed", need, "connections", limit)
	return limit
}

// limitListener bounds the open connections of its server. Further ones wait in the kernel's backlog.
type limitListener struct {
	net.Listener
	open chan struct{} // its capacity is the bound
}

func (l limitListener) Accept() (net.Conn, error) {
	l.open <- struct{}{}
	nc, err := l.Listener.Accept()
	if err != nil {
		<-l.open
		return nil, err
	}
	return &conn{nc, sync.OnceFunc(func() { <-l.open })}, nil
}

type conn struct {
	net.Conn
	release func()
}

func (c *conn) Write(p []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	return c.Conn.Write(p)
}

func (c *conn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
