package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/migrations"
)

//go:embed floor.sql
var floorSQL []byte

const floorAccount = "11111111-1111-4111-8111-111111111111"

type floor struct {
	bench    *bench
	pool     *pgxpool.Pool
	pgbench  string
	script   string
	database string // URL
}

func (b *bench) openFloor(ctx context.Context) (*floor, error) {
	f := &floor{bench: b}
	var err error
	if f.pgbench, err = b.findPgbench(); err != nil {
		return nil, err
	}
	f.script = filepath.Join(b.Folder, "floor.sql")
	if err := os.WriteFile(f.script, floorSQL, 0o600); err != nil {
		return nil, err
	}
	if f.database, err = b.Create(ctx, "floor"); err != nil {
		return nil, err
	}
	if f.pool, err = pgxpool.New(ctx, f.database); err != nil {
		return nil, err
	}
	if err := f.createTables(ctx); err != nil {
		f.pool.Close()
		return nil, err
	}
	return f, nil
}

func (f *floor) createTables(ctx context.Context) error {
	migrator, err := migrations.New(f.pool, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if _, err := migrator.Up(ctx); err != nil {
		return errors.Join(err, migrator.Close())
	}
	if err := migrator.Close(); err != nil {
		return err
	}
	_, err = f.pool.Exec(ctx, "INSERT INTO accounts (id, name) VALUES ($1, 'floor')", floorAccount)
	return err
}

func (f *floor) close() { f.pool.Close() }

// findPgbench prefers the folder of the server's programs, where pgbench has the server's
// version.
func (b *bench) findPgbench() (string, error) {
	for _, folder := range []string{os.Getenv("PG_BIN"), b.BinDir()} {
		program := filepath.Join(folder, "pgbench")
		if _, err := os.Stat(program); folder != "" && err == nil {
			return program, nil
		}
	}
	program, err := exec.LookPath("pgbench")
	if err != nil {
		return "", errors.New("the floor needs pgbench, which is part of PostgreSQL " +
			"(Debian: apt install postgresql; macOS: brew install postgresql@18); PG_BIN may name its folder")
	}
	return program, nil
}

var (
	tpsLine    = regexp.MustCompile(`(?m)^tps = ([0-9.]+) `)
	failedLine = regexp.MustCompile(`(?m)^number of failed transactions: 0 `)
)

// run returns the orders per second and the bytes of WAL per order.
func (f *floor) run(ctx context.Context, clients int, duration time.Duration) (rate, wal float64, err error) {
	before, err := f.written(ctx)
	if err != nil {
		return 0, 0, err
	}
	seconds := strconv.Itoa(int(duration.Seconds()))
	command := exec.CommandContext(ctx, f.pgbench, "--no-vacuum", "--protocol=prepared", //nolint:gosec // found above
		"--file="+f.script, "--client="+strconv.Itoa(clients), "--jobs="+strconv.Itoa(min(clients, 2)), "--time="+seconds, f.database)
	out, err := command.CombinedOutput()
	match := tpsLine.FindSubmatch(out)
	if err != nil || match == nil || !failedLine.Match(out) {
		return 0, 0, fmt.Errorf("pgbench: %w\n%s", err, out)
	}
	if rate, err = strconv.ParseFloat(string(match[1]), 64); err != nil {
		return 0, 0, err
	}
	after, err := f.written(ctx)
	return rate, float64(after.wal-before.wal) / float64(after.orders-before.orders), err
}

type written struct{ orders, wal int64 }

func (f *floor) written(ctx context.Context) (written, error) {
	var w written
	err := f.pool.QueryRow(ctx, "SELECT count(*) FROM orders").Scan(&w.orders)
	if err != nil {
		return w, err
	}
	w.wal, err = f.bench.WAL(ctx)
	return w, err
}
