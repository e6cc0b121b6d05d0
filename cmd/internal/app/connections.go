package app

import (
	"log/slog"
	"net"
	"net/http"
	"syscall"
)

const (
	// maxConnections bounds the requests in flight, too, because each needs memory while it waits for the
	// provider. The proxy in front keeps slow and idle clients away (docs/overload.md).
	maxConnections = 1500

	// Each connection may need another one, to the provider. The rest is for the database and for logs.
	descriptorsPerConnection, otherDescriptors = 2, 64
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

// limitConnections returns a hook that keeps the server from accepting further connections while limit are
// open. They wait in the kernel's backlog.
func limitConnections(limit int) func(net.Conn, http.ConnState) {
	open := make(chan struct{}, limit)
	return func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew: // the server calls it before it accepts the next one
			open <- struct{}{}
		case http.StateClosed, http.StateHijacked:
			<-open
		}
	}
}
