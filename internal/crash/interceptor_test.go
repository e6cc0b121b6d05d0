package crash_test

import (
	"slices"
	"strings"
	"sync"
	"syscall"
)

// moment is the side of an exchange on which a fault is triggered.
type moment string

const (
	before moment = "before" // the other side has not received the request
	after  moment = "after"  // it has responded, and the child has not received the response
)

type fault string

const (
	kill   fault = "kill"   // SIGKILL
	cut    fault = "cut"    // this connection breaks; the child can open others
	outage fault = "outage" // this connection breaks, and so do all later ones to that side
	pause  fault = "pause"  // SIGSTOP, until another run has taken its key over; then SIGCONT
	hold   fault = "hold"   // nothing fails: the exchange only waits until the customer has acted
)

func (f flow) faults() []fault {
	if f.customers == nil {
		return []fault{kill, cut, outage, pause}
	}
	return []fault{kill, cut, outage, pause, hold}
}

// interceptor names and counts the exchanges of one child, and triggers a fault at one
// of them.
type interceptor struct {
	mu    sync.Mutex
	names []string // of the exchanges that count; nil before arm
	from  string
	armed *armedFault
	down  side // the side that has an outage; "" if none has
}

type side string

const (
	database side = "database"
	provider side = "provider"
)

type armedFault struct {
	n         int    // the number of the boundary, from 1
	name      string // or its name, if n is 0
	moment    moment
	fault     fault
	victim    chan *child   // receives the child once that has started
	triggered chan struct{} // closed when the fault is triggered
	resumed   chan struct{} // closed to end a pause or a hold
	once      sync.Once
}

func newFault(n int, name string, m moment, f fault) *armedFault {
	return &armedFault{
		n:         n,
		name:      name,
		moment:    m,
		fault:     f,
		victim:    make(chan *child, 1),
		triggered: make(chan struct{}),
		resumed:   make(chan struct{}),
	}
}

func noFault() *armedFault { return newFault(-1, "", before, cut) }

// arm sets the fault and counts from the first exchange whose name contains from.
func (i *interceptor) arm(f *armedFault, from string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.names, i.armed, i.from = []string{}, f, from
}

func (i *interceptor) recorded() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.names)
}

func (i *interceptor) endOutage() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = ""
}

func (i *interceptor) isDown(s side) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.down == s
}

// exchange is a round trip to the database or a call to the provider.
type exchange struct {
	interceptor *interceptor
	side        side
	n           int // 0 if it does not count
	name        string
}

func (i *interceptor) begin(with side, name string) exchange {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.names == nil || len(i.names) == 0 && !strings.Contains(name, i.from) {
		return exchange{interceptor: i, side: with}
	}
	i.names = append(i.names, name)
	return exchange{interceptor: i, side: with, n: len(i.names), name: name}
}

// proceed triggers the fault if it is armed for this exchange and moment. It reports
// whether the exchange continues; otherwise the caller breaks the connection. It
// returns after a pause or a hold.
func (e exchange) proceed(m moment) bool {
	i := e.interceptor
	i.mu.Lock()
	f := i.armed
	if f == nil || !f.matches(e, m) {
		defer i.mu.Unlock()
		return i.down != e.side
	}
	i.armed = nil
	if f.fault == outage {
		i.down = e.side
	}
	i.mu.Unlock()

	victim := <-f.victim
	switch f.fault {
	case hold:
		close(f.triggered)
		<-f.resumed
		return true
	case pause:
		victim.signal(syscall.SIGSTOP)
		close(f.triggered)
		<-f.resumed
		victim.signal(syscall.SIGCONT)
		return true
	}
	close(f.triggered) // before the victim's client can receive a response
	if f.fault == kill {
		victim.kill()
	}
	return false
}

func (f *armedFault) matches(e exchange, m moment) bool {
	return m == f.moment && e.n > 0 && (e.n == f.n || f.n == 0 && e.name == f.name)
}

// resume ends a pause or a hold, also before it begins.
func (f *armedFault) resume() { f.once.Do(func() { close(f.resumed) }) }

func (f *armedFault) hasTriggered() bool {
	select {
	case <-f.triggered:
		return true
	default:
		return false
	}
}
