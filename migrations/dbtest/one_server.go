package dbtest

import (
	"context"

	"example.com/orders-api/migrations"
)

// What a cluster does in another way is in this file alone, so that it can be replaced.

func (s *server) connectNodes(context.Context) error { return nil }

// exec executes an administrative statement.
func (s *server) exec(ctx context.Context, statement string) error {
	_, err := s.admin.Exec(ctx, statement)
	return err
}

func (s *server) joinNodes(context.Context, string) error { return nil }

func (s *server) distribute(context.Context, *migrations.Migrator) error { return nil }

func (s *server) disconnect(context.Context, string) error { return nil }
