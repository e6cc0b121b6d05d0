package proxytest

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgproto3"
)

const headerLength = 5 // one byte for the type, four for the length

// Codes that a client may send in place of a protocol version.
const (
	codeCancel = 80877102
	codeSSL    = 80877103
	codeGSS    = 80877104
)

type session struct {
	proxy          *Proxy
	client, server net.Conn
	fromClient     *bufio.Reader
	fromServer     *bufio.Reader

	commits   map[string]bool // prepared statements that are a COMMIT
	portals   map[string]bool // portals bound to one of them
	fault     atomic.Int32    // for the COMMIT that was sent last
	released  <-chan struct{} // sends a delayed COMMIT; set before fault
	completed chan struct{}   // receives once per statement before a delayed COMMIT

	mu       sync.Mutex // both directions may write to the client
	toClient *bufio.Writer

	once   sync.Once
	closed chan struct{}
}

func newSession(p *Proxy, client, server net.Conn) *session {
	return &session{
		proxy:      p,
		client:     client,
		server:     server,
		toClient:   bufio.NewWriter(client),
		fromClient: bufio.NewReader(client),
		fromServer: bufio.NewReader(server),
		commits:    map[string]bool{},
		portals:    map[string]bool{},
		completed:  make(chan struct{}),
		closed:     make(chan struct{}),
	}
}

func (s *session) close() {
	s.once.Do(func() {
		close(s.closed)
		_ = s.client.Close()
		_ = s.server.Close()
	})
}

// begin forwards the client's first message, the only one without a type.
func (s *session) begin() bool {
	for {
		packet, err := readPacket(s.fromClient, nil)
		if err != nil {
			return false
		}
		switch binary.BigEndian.Uint32(packet[4:]) {
		case codeSSL, codeGSS:
			if _, err := s.client.Write([]byte{'N'}); err != nil {
				return false
			}
			continue
		case codeCancel:
			s.proxy.cancels.Add(1)
		}
		_, err = s.server.Write(packet)
		return err == nil
	}
}

// batch is what the client sends before it waits for responses.
type batch struct {
	messages []byte
	executes int // statements before the COMMIT
	commit   int // offset of the message that executes COMMIT, or -1
}

func (s *session) forwardRequests() {
	for {
		batch, err := s.readBatch()
		if err != nil {
			s.close()
			return
		}
		if batch.commit >= 0 {
			var fault Fault
			fault, s.released = s.proxy.next()
			s.fault.Store(int32(fault)) // forwardResponses reads released only after it
			switch fault {
			case CutBefore, FatalBefore, HoldCommit, HoldBatch:
				s.holdBack(fault, batch)
				return
			}
		}
		if _, err := s.server.Write(batch.messages); err != nil {
			s.close()
			return
		}
	}
}

func (s *session) readBatch() (batch, error) {
	b := batch{commit: -1}
	for {
		kind, packet, err := readMessage(s.fromClient)
		if err != nil {
			return b, err
		}
		switch {
		case s.isCommit(kind, packet[headerLength:]):
			b.commit = len(b.messages)
		case kind == 'E' && b.commit < 0:
			b.executes++
		}
		b.messages = append(b.messages, packet...)
		if !strings.ContainsRune("PBDEC", rune(kind)) { // Sync, for instance
			return b, nil
		}
	}
}

// isCommit reports whether a message executes a COMMIT, which may have been prepared.
func (s *session) isCommit(kind byte, body []byte) bool {
	switch kind {
	case 'P':
		var parse pgproto3.Parse
		if parse.Decode(body) == nil {
			s.commits[parse.Name] = isCommit(parse.Query)
		}
	case 'B':
		var bind pgproto3.Bind
		if bind.Decode(body) == nil {
			s.portals[bind.DestinationPortal] = s.commits[bind.PreparedStatement]
		}
	case 'E':
		var execute pgproto3.Execute
		return execute.Decode(body) == nil && s.portals[execute.Portal]
	case 'Q':
		var query pgproto3.Query
		return query.Decode(body) == nil && isCommit(query.String)
	}
	return false
}

func isCommit(query string) bool { return strings.EqualFold(strings.TrimSpace(query), "commit") }

// holdBack disconnects the client before the server sees the COMMIT. The Hold faults
// send it when the proxy is released.
func (s *session) holdBack(fault Fault, b batch) {
	before, rest := slices.Clip(b.messages[:b.commit]), b.messages[b.commit:]
	if fault == HoldBatch {
		before, rest = nil, b.messages
	}
	s.sendToServer(before, &pgproto3.Flush{})
	switch fault {
	case FatalBefore:
		s.fail("FATAL", "57P01", "terminating connection due to administrator command")
		fallthrough
	case CutBefore:
		s.close()
		return
	case HoldCommit:
		for range b.executes { // until the transaction holds its locks
			isFirst(s.completed, s.closed)
		}
	}
	s.proxy.held.Add(1)
	defer s.proxy.held.Add(-1)
	_ = s.client.Close()
	if isFirst(s.released, s.closed) {
		s.sendToServer(rest, &pgproto3.Terminate{})
		<-s.closed // by the server
	}
}

func (s *session) sendToServer(messages []byte, last pgproto3.FrontendMessage) {
	messages, err := last.Encode(messages)
	if err == nil {
		_, err = s.server.Write(messages)
	}
	if err != nil {
		s.close()
	}
}

func isFirst(event, other <-chan struct{}) bool {
	select {
	case <-event:
		return true
	case <-other:
		return false
	}
}

func (s *session) forwardResponses() {
	defer s.close()
	for {
		kind, packet, err := readMessage(s.fromServer)
		if err != nil {
			return
		}
		if kind == 'C' && string(packet[headerLength:]) == "COMMIT\x00" {
			switch Fault(s.fault.Load()) {
			case CutAfter:
				return
			case FatalAfter:
				s.fail("FATAL", "57P01", "terminating connection due to administrator command")
				return
			case ErrorAfter:
				s.fail("ERROR", "XX000", "could not commit transaction for shard 102008 on at least one active node")
				continue
			case NotReplicated:
				s.notReplicated()
			}
		}
		switch Fault(s.fault.Load()) {
		case HoldCommit:
			if kind == 'C' {
				select {
				case s.completed <- struct{}{}:
				case <-s.released:
				case <-s.closed:
				}
			}
			continue // the client is disconnected
		case HoldBatch:
			continue
		}
		if !s.write(packet, s.fromServer.Buffered() == 0) {
			return
		}
	}
}

func (s *session) fail(severity, code, message string) {
	packet, err := (&pgproto3.ErrorResponse{
		Severity:            severity,
		SeverityUnlocalized: severity,
		Code:                code,
		Message:             message,
	}).Encode(nil)
	if err == nil {
		s.write(packet, true)
	}
}

// notReplicated sends the warning in German: a client must not rely on its text.
func (s *session) notReplicated() {
	packet, err := (&pgproto3.NoticeResponse{
		Severity:            "WARNUNG",
		SeverityUnlocalized: "WARNING",
		Code:                "01000",
		Message:             "storniere Warten auf synchrone Replikation wegen Benutzeraufforderung",
		File:                "syncrep.c",
		Routine:             "SyncRepWaitForLSN",
	}).Encode(nil)
	if err == nil {
		s.write(packet, false)
	}
}

func (s *session) write(packet []byte, flush bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.toClient.Write(packet)
	if err == nil && flush {
		err = s.toClient.Flush()
	}
	return err == nil
}

func readMessage(r *bufio.Reader) (kind byte, packet []byte, err error) {
	kind, err = r.ReadByte()
	if err != nil {
		return 0, nil, err
	}
	packet, err = readPacket(r, []byte{kind})
	return kind, packet, err
}

func readPacket(r io.Reader, packet []byte) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	body := make([]byte, max(binary.BigEndian.Uint32(length[:]), 4)-4)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	return append(append(packet, length[:]...), body...), nil
}
