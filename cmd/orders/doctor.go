package main

import (
	"context"
	"fmt"
	"time"

	checks "example.com/orders-api/cmd/internal/doctor"
	"example.com/orders-api/cmd/internal/setup"
)

// checkTimeout bounds the checks of one dependency.
const checkTimeout = 10 * time.Second

func doctor(ctx context.Context, call *invocation) error {
	var config setup.All
	if err := call.parse(&config); err != nil {
		return err
	}
	failed := 0
	for _, result := range checks.Run(ctx, &config, setup.Load(&config), checkTimeout) {
		if result.Mark == checks.Failure {
			failed++
		}
		fmt.Fprintln(call.stdout, printable(result.String()))
	}
	if failed > 0 {
		return fmt.Errorf("failed checks: %d", failed)
	}
	return nil
}
