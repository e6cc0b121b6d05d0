package idempotency

import (
	"errors"
	"sync"

	"github.com/google/uuid"
)

// The numbers of a [Gate].
const (
	// standingPart is the part of the places, a quarter, that is open while there is
	// too much to do. A burst may fill all of them, because it passes. In a queue
	// that does not pass work only gets older, and a short one keeps the database
	// just as busy.
	standingPart = 4

	// smallPart is the part of those, a quarter again, up to which an account is not
	// held to them: it is not the one that is too many.
	smallPart = 4

	// drainedPart is the part of the places, a sixteenth, that is still taken when a
	// queue counts as gone. One that stands never gets so short: each place that
	// is given up is taken again at once.
	drainedPart = 16

	// sharePerFree is how many places an account may have for each one that is
	// free: alone four fifths of all, two greedy ones four ninths each, and somebody
	// new always finds one. It needs no list of who is there, and no configuration.
	sharePerFree = 4
)

// Gate bounds how many runs are under way at once, and shares the places among the
// accounts. It turns away at once whoever it does not let in, and makes nobody
// wait: a queue hides that there is too much to do, until nothing in it is worth
// doing any more. A nil Gate lets everybody in. It is safe for concurrent use.
//
// What it bounds above all is the work: runs that use the database and the
// processor. Who waits for somebody else, such as a payment provider, steps aside
// meanwhile, so that hundreds can; their number has a bound of its own, for the
// memory's sake. Who stepped aside may always come back: what has begun is finished
// before something new begins.
type Gate struct {
	places, runs int

	mu       sync.Mutex
	all      taken
	accounts map[uuid.UUID]taken // without those who have nothing
	standing bool                // somebody was turned away, and the queue is not gone yet
	away     uint64              // how many were turned away
}

// GateStats is how full a [Gate] is.
type GateStats struct {
	Places, Runs     int    // as they were given to NewGate
	AtWork, UnderWay int    // those taken; who stepped aside is under way only
	TurnedAway       uint64 // how many were, since the gate was made
}

// Stats says how full the gate is.
func (g *Gate) Stats() GateStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return GateStats{Places: g.places, Runs: g.runs, AtWork: g.all.atWork, UnderWay: g.all.underWay, TurnedAway: g.away}
}

// taken counts runs: those at work, and with those who stepped aside.
type taken struct{ atWork, underWay int }

func (t taken) plus(atWork, underWay int) taken {
	return taken{t.atWork + atWork, t.underWay + underWay}
}

// NewGate returns a gate for so many places at work, and so many runs with those
// who stepped aside.
func NewGate(places, runs int) (*Gate, error) {
	if places < 1 || runs < places {
		return nil, errors.New("idempotency: a gate needs a place, and no fewer runs than places")
	}
	return &Gate{places: places, runs: runs, accounts: map[uuid.UUID]taken{}}, nil
}

// Enter takes a place for the account. It returns [ErrOverloaded] when there is
// none, and [ErrShareTaken] when it is only this account that may have no more.
func (g *Gate) Enter(accountID uuid.UUID) (*Place, error) {
	if g == nil {
		return nil, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	own, open := g.accounts[accountID], g.places
	if few := max(1, g.places/standingPart); g.standing && own.atWork >= max(1, few/smallPart) {
		open = few
	}
	err := fits(own.atWork, g.all.atWork, open, g.places)
	if err == nil {
		err = fits(own.underWay, g.all.underWay, g.runs, g.runs)
	}
	if err != nil {
		g.standing = true
		g.away++
		return nil, err
	}
	g.count(accountID, 1, 1)
	return &Place{gate: g, account: accountID}, nil
}

// fits says whether an account that has own of those that are taken may have one
// more, with so many open, of places that are there.
func fits(own, taken, open, places int) error {
	switch {
	case own < sharePerFree*(open-taken):
		return nil
	case own < taken && taken < places:
		return ErrShareTaken // there are others, and for those there is room
	default:
		return ErrOverloaded
	}
}

func (g *Gate) count(accountID uuid.UUID, atWork, underWay int) {
	g.all = g.all.plus(atWork, underWay)
	g.standing = g.standing && g.all.atWork > g.places/drainedPart
	own := g.accounts[accountID].plus(atWork, underWay)
	if own == (taken{}) {
		delete(g.accounts, accountID)
		return
	}
	g.accounts[accountID] = own
}

// Place is a place behind a [Gate], for one goroutine. A nil Place is that of
// somebody who needs none.
type Place struct {
	gate    *Gate
	account uuid.UUID
	left    bool
}

// StepAside frees the place for others while its owner waits for somebody else.
func (p *Place) StepAside() { p.count(-1, 0) }

// ComeBack takes the place again, at once and in any case.
func (p *Place) ComeBack() { p.count(1, 0) }

// Leave gives the place up. A second call does nothing.
func (p *Place) Leave() {
	p.count(-1, -1)
	if p != nil {
		p.left = true
	}
}

func (p *Place) count(atWork, underWay int) {
	if p == nil || p.left {
		return
	}
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.gate.count(p.account, atWork, underWay)
}
