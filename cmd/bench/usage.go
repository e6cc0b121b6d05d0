package main

import (
	"os"

	"github.com/prometheus/procfs"
)

// usage is CPU seconds by process, used so far.
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

// usage reads what the shop's processes have used. Where there is no /proc it is
// zero.
func (s *shop) usage() (usage, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return usage{}, nil //nolint:nilerr // not Linux
	}
	all, err := fs.AllProcs()
	if err != nil {
		return usage{}, err
	}
	apis := map[int]bool{}
	for _, p := range s.apis {
		apis[p.PID()] = true
	}
	var u usage
	for _, p := range all {
		stat, err := p.Stat()
		if err != nil {
			continue // ended meanwhile
		}
		switch {
		case apis[p.PID]:
			u.api += stat.CPUTime()
		case p.PID == s.stripe.PID():
			u.stripe += stat.CPUTime()
		case p.PID == os.Getpid():
			u.load += stat.CPUTime()
		case p.PID == s.bench.postgres.PID():
			u.postgres += stat.CPUTime() + float64(stat.CUTime+stat.CSTime)/userHZ // backends that ended
		case stat.PPID == s.bench.postgres.PID():
			u.postgres += stat.CPUTime()
		}
	}
	return u, nil
}

// cpu returns the CPU seconds of an API process so far; zero where there is no
// /proc.
func (s *shop) cpu(i int) float64 {
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

// userHZ is the unit of /proc/PID/stat on every Linux.
const userHZ = 100

// peakMemory returns the most memory that the first API process ever held, in
// bytes.
func (s *shop) peakMemory() (uint64, error) {
	p, err := procfs.NewProc(s.apis[0].PID())
	if err != nil {
		return 0, nil //nolint:nilerr // not Linux
	}
	status, err := p.NewStatus()
	return status.VmHWM, err
}
