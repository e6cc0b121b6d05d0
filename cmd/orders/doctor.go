package main

import (
	"context"
	"fmt"
	"time"

	"example.com/orders-api/cmd/internal/boot"
	examiner "example.com/orders-api/cmd/internal/doctor"
)

// doctor prints a line for everything that the program needs, and fails when
// something is wrong.
func doctor(ctx context.Context, call invocation) error {
	var config examiner.Environment
	flags := call.flags()
	limit := flags.Duration("limit", 10*time.Second, "how long each check may take")
	if err := call.parse(flags, &config); err != nil {
		return err
	}
	if *limit <= 0 {
		return wrongUsage(call.name, "--limit %s is not a positive duration", *limit)
	}
	wrong := boot.Load(&config)
	faults, warnings := 0, 0
	for _, finding := range examiner.Examine(ctx, examiner.Examination{Environment: &config, Wrong: wrong, Limit: *limit}) {
		switch finding.Verdict {
		case examiner.Fault:
			faults++
		case examiner.Warning:
			warnings++
		}
		if _, err := fmt.Fprintln(call.stdout, finding); err != nil {
			return err
		}
	}
	if faults > 0 {
		return fmt.Errorf("faults found: %d (and warnings: %d)", faults, warnings)
	}
	return nil
}
