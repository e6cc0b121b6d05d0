package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"

	"example.com/orders-api/lab/measure"
)

func (b *bench) printHeader() {
	fmt.Fprintf(b.out, "medians of %d rounds of %s; CPU in ms per order\n", b.rounds, b.window)
	fmt.Fprintf(b.out, "%8s %9s %9s %6s %8s %8s %8s %9s %6s %6s %6s %6s %9s %7s\n",
		"clients", "orders/s", "floor/s", "ratio", "p50", "p99", "WAL/ord", "WAL/floor", "api", "pg", "stripe", "load", "replays/s", "RSS")
}

// printRow prints the medians for one number of clients. The ratio is the median of each
// round's ratio, because the speed of a machine drifts.
func (b *bench) printRow(rounds []window) {
	of := func(get func(window) float64) float64 { return measure.Median(rounds, get) }
	fmt.Fprintf(b.out, "%8d %9.0f %9.0f %6.2f %8s %8s %8.0f %9.0f %6.2f %6.2f %6.2f %6.2f %9.0f %4.0fMiB\n",
		rounds[0].Clients,
		of(func(w window) float64 { return w.Orders }),
		of(func(w window) float64 { return w.Floor }),
		of(func(w window) float64 { return w.Orders / w.Floor }),
		milliseconds(of(func(w window) float64 { return float64(w.P50) })),
		milliseconds(of(func(w window) float64 { return float64(w.P99) })),
		of(func(w window) float64 { return w.WAL }),
		of(func(w window) float64 { return w.FloorWAL }),
		of(func(w window) float64 { return w.API * 1000 }),
		of(func(w window) float64 { return w.PostgreSQL * 1000 }),
		of(func(w window) float64 { return w.Fake * 1000 }),
		of(func(w window) float64 { return w.Load * 1000 }),
		of(func(w window) float64 { return w.Replays }),
		of(func(w window) float64 { return float64(w.Memory) / (1 << 20) }))
}

func milliseconds(nanoseconds float64) string {
	return time.Duration(nanoseconds).Round(100 * time.Microsecond).String()
}

func (b *bench) save() error {
	if b.record == "" {
		return nil
	}
	text, err := json.MarshalIndent(b.windows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(b.record, append(text, '\n'), 0o644) //nolint:gosec // not confidential
}

// usage is the CPU time used so far, in seconds.
type usage struct {
	api, postgres, stripe, load float64
}

func (u usage) since(before usage) usage {
	return usage{u.api - before.api, u.postgres - before.postgres, u.stripe - before.stripe, u.load - before.load}
}

func (u usage) per(n int) usage {
	d := float64(n)
	return usage{u.api / d, u.postgres / d, u.stripe / d, u.load / d}
}

// usage returns zero on a system without /proc.
func (s *system) usage() (usage, error) {
	seconds, err := s.bench.CPU()
	u := usage{postgres: seconds[s.bench.PID()], stripe: seconds[s.stripe.PID()], load: seconds[os.Getpid()]}
	for _, p := range s.apis {
		u.api += seconds[p.PID()]
	}
	return u, err
}

// cpu returns the CPU seconds of process i of apis, or zero without /proc.
func (s *system) cpu(i int) float64 {
	p, err := procfs.NewProc(s.apis[i].PID())
	if err != nil {
		return 0
	}
	stat, err := p.Stat()
	if err != nil {
		return 0
	}
	return stat.CPUTime()
}

// peakMemory returns the peak resident bytes of the first API process, or zero without
// /proc.
func (s *system) peakMemory() (uint64, error) {
	p, err := procfs.NewProc(s.apis[0].PID())
	if err != nil {
		return 0, nil //nolint:nilerr // not Linux
	}
	status, err := p.NewStatus()
	return status.VmHWM, err
}
