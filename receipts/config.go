package receipts

import (
	"errors"
	"math/rand/v2"
	"time"
)

// Config configures a [Worker]. From is required; other zero fields have defaults.
type Config struct {
	// From is the sender: an address, or "Shop <shop@example.com>".
	From string

	// Concurrency is the number of mails sent at once. Default 4: one slow mail does
	// not delay the others, and any mail server and pool can take it.
	Concurrency int

	// SendTimeout bounds one session with the mail server, and so the time that a
	// worker needs to stop. Default 30s. RFC 5321 allows the server more time to
	// accept a mail. A shorter timeout can cause a second copy with the same
	// Message-ID, but never a lost receipt.
	SendTimeout time.Duration

	// MaxAttempts is the number of attempts after which a job is marked as failed.
	// Default 300: with [Backoff] these take about three days, so a mail server may
	// be down for a weekend.
	MaxAttempts int

	// Backoff returns the delay after the given attempt, counted from 1. Default
	// [Backoff].
	Backoff func(attempt int) time.Duration

	// Observe, if set, is called after each attempt with its outcome (sent, retried,
	// failed or lost, see [Result]) and duration. It is called synchronously and by
	// several goroutines.
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

// maxBackoff bounds the delay of a receipt after its mail server has recovered.
const maxBackoff = 15 * time.Minute

// Backoff returns about 1s after the first attempt, then 2s, 4s, … up to 15 minutes.
// The jitter of ±20% separates jobs that failed at the same time.
func Backoff(attempt int) time.Duration {
	delay := maxBackoff
	if attempt <= 10 { // 2^10 s is more than the cap
		delay = time.Second << max(attempt-1, 0)
	}
	return delay*4/5 + rand.N(delay*2/5) //nolint:gosec // jitter needs no secrecy
}
