package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

// Service takes the provider's events, and records what they are about. It is safe for concurrent use, also by
// several processes.
type Service struct {
	Orders  *orders.Service
	Timeout time.Duration // of an order: a run of its key, and the calls of a step
}

// Worker returns the worker of the orders' jobs.
func (s *Service) Worker() *jobs.Worker {
	return &jobs.Worker{
		Pool:        s.Orders.Pool,
		Logger:      s.Orders.Logger,
		Kind:        orders.ChangeJob,
		Do:          s.work,
		Timeout:     s.Timeout,
		Concurrency: 4,
		Detail:      error.Error,
	}
}

func (s *Service) work(ctx context.Context, j jobs.Job) error {
	err := s.Sync(ctx, j.AccountID, j.ID)
	if failed, ok := errors.AsType[*payments.Error](err); ok && failed.KeyRejected() {
		err = fmt.Errorf("%w: %w", jobs.ErrMisconfigured, err)
	}
	return err
}
