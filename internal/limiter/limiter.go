package limiter

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"
)

var (
	ErrOverloaded  = errors.New("too many requests are in progress")
	ErrRateLimited = errors.New("the account has too many requests in progress")
)

type Config struct {
	Work, InFlight, PerAccount int
	Wait                       time.Duration
}

type Stats struct {
	Capacity, Running, Waiting, InFlight int
	Rejected                             uint64
}

type Limiter struct{}

func New(Config) (*Limiter, error) { return &Limiter{}, nil }

func (l *Limiter) Stats() Stats { return Stats{} }

func (l *Limiter) Do(ctx context.Context, accountID uuid.UUID, work func(context.Context) error) error {
	return work(ctx)
}

func Transport(next http.RoundTripper) http.RoundTripper { return next }
