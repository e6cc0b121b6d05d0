package measure

import "github.com/prometheus/procfs"

// userHZ is the number of clock ticks per second in /proc/PID/stat on Linux.
const userHZ = 100

// CPU returns the CPU seconds of processes, by their ids. Those of the server include its
// backends. On a system without /proc all are zero.
func (p *PostgreSQL) CPU() (map[int]float64, error) {
	seconds := map[int]float64{}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return seconds, nil //nolint:nilerr // not Linux
	}
	all, err := fs.AllProcs()
	if err != nil {
		return nil, err
	}
	for _, process := range all {
		stat, err := process.Stat()
		if err != nil {
			continue // has exited
		}
		switch server := p.PID(); {
		case process.PID == server:
			seconds[server] += stat.CPUTime() + float64(stat.CUTime+stat.CSTime)/userHZ // exited backends
		case stat.PPID == server:
			seconds[server] += stat.CPUTime()
		default:
			seconds[process.PID] = stat.CPUTime()
		}
	}
	return seconds, nil
}
