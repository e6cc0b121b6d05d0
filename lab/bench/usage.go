package main

import (
	"os"

	"github.com/prometheus/procfs"
)

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
