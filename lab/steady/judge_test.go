package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/lab/measure"
)

// Each leak that the run is for fails it, and a figure that only varies does not.
func TestJudge(t *testing.T) {
	t.Parallel()
	counts := []string{"worker: goroutines", "serve: descriptors", "sessions"}
	names := []string{"serve: memory MiB", "serve: stacks MiB", "orders: dead rows"}
	play := func(leaks string, growth float64) error {
		all := make([]part, parts)
		for minute := range 60 {
			leaked := growth * float64(minute)
			p := &all[minute/20]
			s := sample{figures: map[string]float64{}, orders: float64(minute) * 1000}
			s.records, s.cpu = s.orders*6000, s.orders*1.5
			switch leaks {
			case "WAL":
				s.records += leaked * s.orders
			case "CPU":
				s.cpu += leaked * s.orders / 100
			}
			p.report.Requests = append(p.report.Requests, measure.Request{Latency: 10 * time.Millisecond, Status: 201})
			for i, name := range names {
				s.figures[name] = 40 + 3*float64((minute+i)%3) // varies
				if name == leaks {
					s.figures[name] += leaked
				}
			}
			p.counts = map[string]float64{}
			for i, name := range counts {
				p.counts[name] = 20 + float64((minute/20+i)%3)
				if name == leaks {
					p.counts[name] += leaked
				}
			}
			p.samples = append(p.samples, s)
		}
		return judge(all, io.Discard)
	}
	require.NoError(t, play("", 0))
	for _, name := range append(append(names, counts...), "WAL", "CPU") {
		growth := 1.0
		if strings.Contains(name, "rows") || name == "WAL" {
			growth = 100
		}
		require.ErrorContains(t, play(name, growth), name)
	}
}
