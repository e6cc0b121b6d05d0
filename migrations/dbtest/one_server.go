package dbtest

import (
	"context"

	"example.com/orders-api/migrations"
)

// This file has the parts that differ on a cluster of servers, so that tests of a cluster can replace it.

func (s *server) connectNodes(context.Context) error { return nil }

// exec executes an administrative statement.
func (s *server) exec(ctx context.Context, statement string) error {
	_, err := s.admin.Exec(ctx, statement)
	return err
}

func (s *server) joinNodes(context.Context, string) error { return nil }

func (s *server) distribute(context.Context, *migrations.Migrator) error { return nil }

func (s *server) disconnect(context.Context, string) error { return nil }
