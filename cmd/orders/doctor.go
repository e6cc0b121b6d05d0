package main

import (
	"context"
	"fmt"
	"time"

	"example.com/orders-api/cmd/internal/boot"
	checks "example.com/orders-api/cmd/internal/doctor"
)

func doctor(ctx context.Context, call invocation) error {
	var config boot.All
	flags := call.flags()
	timeout := flags.Duration("limit", 10*time.Second, "how long each check may take")
	if _, err := call.parse(flags, &config); err != nil {
		return err
	}
	if err := call.requirePositive(flags, "limit"); err != nil {
		return err
	}
	checker := checks.Checker{ConfigError: boot.Load(&config), Environment: &config, Timeout: *timeout}
	failures, warnings := 0, 0
	for _, result := range checker.Run(ctx) {
		switch result.Severity {
		case checks.Failure:
			failures++
		case checks.Warning:
			warnings++
		}
		if _, err := fmt.Fprintln(call.stdout, result); err != nil {
			return err
		}
	}
	if failures > 0 {
		return fmt.Errorf("failed checks: %d, warnings: %d", failures, warnings)
	}
	return nil
}
