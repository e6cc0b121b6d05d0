package receipts

import (
	"errors"
	"math/rand/v2"
	"time"
)

// Config tunes a [Worker]. A zero field takes its default; From has none.
type Config struct {
	// From is the sender: an address, or "Shop <shop@example.com>".
	From string

	// Concurrency is how many mails are sent at once. Default 4: enough that one
	// slow mail holds nobody up, few enough for any mail server and any pool.
	Concurrency int

	// SendTimeout bounds one dialogue with the mail server, and with it how long
	// a stopping worker takes. Default 30s. RFC 5321 would wait longer for the
	// answer to a mail's final dot; giving up earlier risks a second copy with the
	// same Message-ID, never a lost receipt.
	SendTimeout time.Duration

	// MaxAttempts is after how many failures a job is given up. Default 300: with
	// [Backoff] that is about three days, so a mail server that broke on Friday
	// evening and is mended on Monday loses nothing.
	MaxAttempts int

	// Backoff says how long a job waits after its attempt-th failure, counted from
	// 1. Default [Backoff].
	Backoff func(attempt int) time.Duration

	// Observe, when not nil, hears what became of each attempt, for metrics: sent,
	// retried, dead or unsettled (see [Result]), and what it took. A lane waits for
	// it.
	Observe func(outcome string, took time.Duration)
}

func (c Config) withDefaults() (Config, error) {
	if c.Concurrency == 0 {
		c.Concurrency = 4
	}
	if c.SendTimeout == 0 {
		c.SendTimeout = 30 * time.Second
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 300
	}
	if c.Backoff == nil {
		c.Backoff = Backoff
	}
	if c.Concurrency < 0 || c.SendTimeout < 0 || c.MaxAttempts < 0 {
		return Config{}, errors.New("receipts: concurrency, send timeout and attempts cannot be negative")
	}
	return c, nil
}

// maxBackoff keeps a receipt from coming hours after its mail server came back.
const maxBackoff = 15 * time.Minute

// Backoff is about 1s after the first failure, then 2s, 4s, … up to 15 minutes,
// each 20% up or down so that jobs that failed together do not return together.
func Backoff(attempt int) time.Duration {
	delay := maxBackoff
	if attempt <= 10 { // 2^10 s is more than the cap
		delay = time.Second << max(attempt-1, 0)
	}
	return delay*4/5 + rand.N(delay*2/5) //nolint:gosec // jitter needs no secrecy
}
