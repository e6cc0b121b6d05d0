package tour

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/mail"
	"strings"
	"sync"

	"github.com/emersion/go-smtp"
)

// mailbox is a mail server that keeps the mails it accepts.
type mailbox struct {
	address string
	server  *smtp.Server

	mu    sync.Mutex
	mails []*mail.Message
}

func newMailbox(ctx context.Context) (*mailbox, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &mailbox{address: listener.Addr().String()}
	m.server = smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return session{m}, nil }))
	m.server.Domain = "localhost"
	m.server.ErrorLog = log.New(io.Discard, "", 0) // it would print between the tour's lines
	go func() { _ = m.server.Serve(listener) }()
	return m, nil
}

func (m *mailbox) close() error { return m.server.Close() }

// received returns the number of mails.
func (m *mailbox) received() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.mails)
}

// receivedFor returns the number of mails about an order, whose id is in the
// Message-ID.
func (m *mailbox) receivedFor(orderID string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, message := range m.mails {
		if strings.Contains(message.Header.Get("Message-Id"), orderID) {
			n++
		}
	}
	return n
}

// session is one SMTP session.
type session struct{ box *mailbox }

func (session) Reset()                               {}
func (session) Logout() error                        { return nil }
func (session) Mail(string, *smtp.MailOptions) error { return nil }
func (session) Rcpt(string, *smtp.RcptOptions) error { return nil }

// Data accepts one mail.
func (s session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	message, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("not a mail: %w", err)
	}
	s.box.mu.Lock()
	defer s.box.mu.Unlock()
	s.box.mails = append(s.box.mails, message)
	return nil
}
