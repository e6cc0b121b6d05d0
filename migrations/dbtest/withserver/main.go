// Command withserver runs a command, such as go test ./..., and a private PostgreSQL server that
// the tests of all its packages share.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"example.com/orders-api/internal/embeddedpg"
)

func main() {
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "withserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command []string) (err error) {
	server, err := embeddedpg.Start(ctx, embeddedpg.Options{
		BinDir: os.Getenv("PG_BIN"),
		Notice: func(line string) { fmt.Fprintln(os.Stderr, line) },
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // the server stops after it
	cmd.Env = append(os.Environ(), "DBTEST_SERVER="+server.URL("postgres"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
