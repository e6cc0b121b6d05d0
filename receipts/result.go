package receipts

import (
	"sync"
	"time"
)

// Result counts the attempts of one pass by outcome.
type Result struct {
	Sent    int // accepted by the mail server, job deleted
	Retried int // to be tried again after its backoff
	Failed  int // not to be tried again: failed_at is set, an operator has to act
	// Lost outcomes could not be recorded, because the lease had expired or the
	// database was unavailable. The job is tried again, so a mail that was accepted
	// is sent twice.
	Lost int
}

// Stats counts the jobs of all accounts.
type Stats struct {
	Pending int           // jobs to be sent, leased ones included
	Oldest  time.Duration // age of the oldest pending job; 0 if there is none
	Failed  int           // jobs that an operator has to look at
}

// outcome is the result of one attempt.
type outcome int

const (
	sent outcome = iota
	retried
	failed
	lost
)

func (o outcome) String() string { return [...]string{"sent", "retried", "failed", "lost"}[o] }

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
	case failed:
		c.result.Failed++
	case lost:
		c.result.Lost++
	}
	if cause != nil {
		c.lastError = cause
	}
}
