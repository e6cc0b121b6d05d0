package receipts

import (
	"sync"
	"time"
)

// Result counts the jobs of one pass by what became of them.
type Result struct {
	Sent    int // accepted by the mail server, job deleted
	Retried int // failed, due again after its backoff
	Dead    int // given up: failed_at is set until a person looks
	// Unsettled outcomes could not be written down, because the database was away
	// or the lease had run out. Such a job is tried again: a mail that was accepted
	// goes out twice.
	Unsettled int
}

// Stats is how the receipts are doing, over all accounts.
type Stats struct {
	Waiting int           // jobs alive, leased ones included
	Oldest  time.Duration // age of the oldest of them; 0 when there is none
	Dead    int           // jobs given up
}

// outcome is what became of a job in one attempt.
type outcome int

const (
	sent outcome = iota
	retried
	dead
	unsettled
)

func (o outcome) String() string { return [...]string{"sent", "retried", "dead", "unsettled"}[o] }

// counter counts the outcomes of concurrent attempts.
type counter struct {
	mu        sync.Mutex
	result    Result
	lastError error // a sample, for the log
}

func (c *counter) add(o outcome, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o {
	case sent:
		c.result.Sent++
	case retried:
		c.result.Retried++
	case dead:
		c.result.Dead++
	case unsettled:
		c.result.Unsettled++
	}
	if cause != nil {
		c.lastError = cause
	}
}
