//go:build unix

package main

import (
	"io"
	"log"
	"maps"
	"net"
	"sync"

	"github.com/emersion/go-smtp"
)

// mailServer counts receipts by recipient. Some get a temporary error, and some are
// accepted without a response.
type mailServer struct {
	address string
	server  *smtp.Server

	mu       sync.Mutex
	receipts map[string]int
	mails    int
}

func startMail() (*mailServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &mailServer{address: listener.Addr().String(), receipts: map[string]int{}}
	m.server = smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &mailSession{server: m}, nil }))
	m.server.Domain = "mail.example.com"
	m.server.ErrorLog = log.New(io.Discard, "", 0)
	go func() { _ = m.server.Serve(listener) }()
	return m, nil
}

func (m *mailServer) accepted() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.receipts)
}

type mailSession struct {
	server *mailServer
	to     string
}

func (*mailSession) Reset()                               {}
func (*mailSession) Logout() error                        { return nil }
func (*mailSession) Mail(string, *smtp.MailOptions) error { return nil }

func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = to
	return nil
}

// Data rejects every 50th mail, and accepts another one but returns an error.
func (s *mailSession) Data(r io.Reader) error {
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	m := s.server
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mails++
	busy := &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "try again later"}
	if m.mails%50 == 0 {
		return busy
	}
	m.receipts[s.to]++
	if m.mails%50 == 25 {
		return busy // the worker sends this receipt again
	}
	return nil
}
