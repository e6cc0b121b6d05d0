package limiter

import (
	"context"

	"github.com/google/uuid"
)

type Limiter struct{}

func (l *Limiter) Do(ctx context.Context, accountID uuid.UUID, work func(context.Context) error) error {
	return work(ctx)
}
