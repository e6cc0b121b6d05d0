package main

import (
	"context"
	"io"
)

// Main runs the program, for the test binary.
func Main() { main() }

// DevFolderName names the data of dev, for its test.
func DevFolderName(module, working string) string { return devFolderName(module, working) }

// Run runs the program inside the test process.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return run(ctx, args, stdout, stderr)
}
