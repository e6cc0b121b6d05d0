package main

import (
	"context"
	"fmt"
	"time"

	"example.com/orders-api/cmd/internal/boot"
	checks "example.com/orders-api/cmd/internal/doctor"
)

// checkTimeout bounds the checks of one dependency.
const checkTimeout = 10 * time.Second

func doctor(ctx context.Context, call *invocation) error {
	var config boot.All
	if err := call.parse(&config); err != nil {
		return err
	}
	failed := 0
	for _, result := range checks.Run(ctx, &config, boot.Load(&config), checkTimeout) {
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
