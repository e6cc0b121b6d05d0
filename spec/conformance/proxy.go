package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// cut is where the proxy breaks the connection.
type cut int

const (
	cutBefore   cut = iota // before the request is forwarded
	cutRunning             // while the server works: both connections
	cutResponse            // before the response
	cutMiddle              // in the middle of the response
	cuts                   // their number
)

func (c cut) String() string {
	return [...]string{"before the request", "while the request is in progress", "before the response", "in the middle of the response"}[c]
}

// proxy forwards requests to the server and breaks each connection at one place.
type proxy struct {
	url      string
	listener net.Listener
	server   string // its URL
	http     *http.Client
	cut      cut
	running  time.Duration // how long a request is in progress before cutRunning
	serving  sync.WaitGroup
}

func newProxy(ctx context.Context, s *suite, where cut, running time.Duration) (*proxy, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{
		url: "http://" + listener.Addr().String(), listener: listener, server: s.p.URL,
		http: s.http, cut: where, running: running,
	}
	p.serving.Go(func() { p.accept(ctx) })
	return p, nil
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.serving.Wait()
}

func (p *proxy) accept(ctx context.Context) {
	for {
		connection, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.serving.Go(func() {
			defer func() { _ = connection.Close() }()
			if response, err := p.forward(ctx, connection); err == nil && p.cut == cutMiddle {
				_, _ = connection.Write(response[:len(response)-(len(response)+3)/4]) // three quarters
			}
		})
	}
}

// forward returns the bytes of the server's response.
func (p *proxy) forward(ctx context.Context, connection net.Conn) ([]byte, error) {
	incoming, err := http.ReadRequest(bufio.NewReader(connection))
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(incoming.Body)
	if err != nil {
		return nil, err
	}
	if p.cut == cutBefore {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if p.cut == cutRunning {
		time.AfterFunc(p.running, cancel)
	}
	outgoing, err := http.NewRequestWithContext(ctx, incoming.Method, p.server+incoming.RequestURI, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	outgoing.Header = incoming.Header
	response, err := p.http.Do(outgoing)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = errors.Join(response.Write(&text), response.Body.Close())
	return text.Bytes(), err
}

// throughProxy sends a request that loses its connection.
func (s *suite) throughProxy(ctx context.Context, where cut, r request) (*exchange, error) {
	running := s.poll / 5
	if s.p.Slow != nil && r.body == s.p.Slow.Body {
		running = s.p.Slow.Lasts / 3
	}
	p, err := newProxy(ctx, s, where, running)
	if err != nil {
		return nil, err
	}
	defer p.close()
	r.through, r.cut = p.url, where.String()
	return s.send(ctx, r), nil
}
