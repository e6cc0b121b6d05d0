package crash_test

import (
	"slices"
	"strings"
	"sync"
	"syscall"
)

// moment says on which side of an exchange a fault strikes.
type moment string

const (
	before moment = "before" // the other side has not seen it
	after  moment = "after"  // it has answered, and the child has not heard it
)

// fault is what happens to a child at a boundary.
type fault string

const (
	kill   fault = "kill"   // SIGKILL
	cut    fault = "cut"    // this connection breaks; others can be made
	outage fault = "outage" // and from then on none can be made to that side
	pause  fault = "pause"  // SIGSTOP, until its lease is taken over; then SIGCONT
)

func faults() []fault { return []fault{kill, cut, outage, pause} }

// border is where a child's exchanges with the world pass. It names and counts
// them, and lets a fault strike at one.
type border struct {
	mu     sync.Mutex
	names  []string // of the exchanges that count; nil before watch
	from   string   // what the first of them has in its name
	ambush *ambush
	down   side // to which nothing passes; "" when all is well
}

// side is whom a child talks to.
type side string

const (
	database side = "database"
	provider side = "provider"
)

// ambush is a fault that waits for its boundary.
type ambush struct {
	n      int    // the number of the boundary, from 1
	name   string // or its name, where n is 0
	moment moment
	fault  fault
	victim chan *child   // whom it strikes, known when that has started
	struck chan struct{} // closed when it strikes
	awake  chan struct{} // closed to end a pause
	once   sync.Once
}

// nowhere is an ambush that nothing falls into.
func nowhere() *ambush { return newAmbush(-1, "", before, cut) }

func newAmbush(n int, name string, m moment, f fault) *ambush {
	return &ambush{
		n:      n,
		name:   name,
		moment: m,
		fault:  f,
		victim: make(chan *child, 1),
		struck: make(chan struct{}),
		awake:  make(chan struct{}),
	}
}

// watch sets an ambush, and begins to count: with the first exchange whose name
// has that part.
func (b *border) watch(a *ambush, from string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names, b.ambush, b.from = []string{}, a, from
}

// seen returns the names of the exchanges so far.
func (b *border) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.names)
}

// heal ends an outage.
func (b *border) heal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = ""
}

// isDown says whether that side has an outage.
func (b *border) isDown(s side) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.down == s
}

// exchange is one boundary: a round trip or a call, on its way.
type exchange struct {
	border *border
	side   side
	n      int // 0 when it does not count
	name   string
}

// begin counts an exchange.
func (b *border) begin(with side, name string) exchange {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.names == nil || len(b.names) == 0 && !strings.Contains(name, b.from) {
		return exchange{border: b, side: with}
	}
	b.names = append(b.names, name)
	return exchange{border: b, side: with, n: len(b.names), name: name}
}

// pass says whether the exchange goes on. It returns when a fault has struck
// that strikes here, and after a pause when that is over.
func (e exchange) pass(m moment) bool {
	b := e.border
	b.mu.Lock()
	a := b.ambush
	if a == nil || !a.waitsFor(e, m) {
		defer b.mu.Unlock()
		return b.down != e.side
	}
	b.ambush = nil // it strikes once
	if a.fault == outage {
		b.down = e.side
	}
	b.mu.Unlock()

	victim := <-a.victim
	if a.fault == pause {
		victim.signal(syscall.SIGSTOP)
		close(a.struck)
		<-a.awake
		victim.signal(syscall.SIGCONT)
		return true
	}
	close(a.struck) // first, for its client must not be heard before
	if a.fault == kill {
		victim.kill()
	}
	return false // the caller breaks the connection
}

func (a *ambush) waitsFor(e exchange, m moment) bool {
	return m == a.moment && e.n > 0 && (e.n == a.n || a.n == 0 && e.name == a.name)
}

// wake ends a pause, now or when it begins.
func (a *ambush) wake() { a.once.Do(func() { close(a.awake) }) }

func (a *ambush) hasStruck() bool {
	select {
	case <-a.struck:
		return true
	default:
		return false
	}
}
