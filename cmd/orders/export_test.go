package main

import (
	"context"
	"io"
)

// Main lets the test binary be the program.
func Main() { main() }

// Run is the program without a process of its own.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return run(ctx, args, stdout, stderr)
}
