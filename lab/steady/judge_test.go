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
	o := options{warm: time.Minute, duration: time.Hour}
	names := []string{"serve: memory MiB", "worker: goroutines", "serve: descriptors", "sessions", "orders: dead rows"}
	play := func(leaks string, growth float64) error {
		var samples []sample
		var report measure.Report
		for minute := range 61 {
			leaked := growth * float64(minute)
			s := sample{at: time.Duration(minute) * time.Minute, figures: map[string]float64{}, orders: float64(minute) * 1000}
			s.records, s.cpu = s.orders*6000, s.orders*1.5
			switch leaks {
			case "WAL":
				s.records += leaked * s.orders
			case "CPU":
				s.cpu += leaked * s.orders / 100
			}
			report.Requests = append(report.Requests, measure.Request{At: s.at, Latency: 10 * time.Millisecond, Status: 201})
			for i, name := range names {
				s.figures[name] = 40 + 3*float64((minute+i)%3) // varies
				if i > 0 && i < 4 && minute > 40 && minute%4 > 0 {
					s.figures[name] += 20 // the machine is busy
				}
				if name == leaks {
					s.figures[name] += leaked
				}
			}
			samples = append(samples, s)
		}
		return judge(samples, report, o, io.Discard)
	}
	require.NoError(t, play("", 0))
	for _, name := range append(names, "WAL", "CPU") {
		growth := 1.0
		if strings.Contains(name, "rows") || name == "WAL" {
			growth = 100
		}
		require.ErrorContains(t, play(name, growth), name)
	}
}
