//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Each fault has its own stream of random numbers, so a change of one does not affect the
// others.
const (
	killStream = iota
	pauseStream
	crashStream
	providerStream
	webhookStream
	transportStream
	duplicateStream
	failoverStream
	eventStream
	changeStream
	customerStream = 1000    // and above
	shopStream     = 1 << 32 // and above
)

func random(seed, stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, stream)) //nolint:gosec // a seed repeats the faults
}

// pause waits, and reports whether ctx is still valid.
func pause(ctx context.Context, duration time.Duration) bool {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// spread calls work n times at random moments, once in each n-th of duration.
func spread(ctx context.Context, r *rand.Rand, n int, duration time.Duration, work func()) {
	start, part := time.Now(), duration/time.Duration(max(n, 1))
	for i := range n {
		due := time.Duration(i)*part + time.Duration(r.Int64N(int64(part)))
		if !pause(ctx, due-time.Since(start)) {
			return
		}
		work()
	}
}

type faults struct {
	system     *system
	customers  *customers
	kills      map[string]int // by kind
	pauses     int
	crashes    int
	runs       int // of orders reconcile --fix
	fixed      int // discrepancies
	losses     []*loss
	background sync.WaitGroup // of customers who retry after lost rows

	// operating is held during a failover and the runbook's commands, when no other fault
	// and no other command runs.
	operating sync.RWMutex

	// closed is held while the runbook keeps the shop closed, when no purchase begins. Those that have begun
	// go on.
	closed sync.RWMutex

	cancel context.CancelFunc // of the run
	mu     sync.Mutex
	err    error
}

func (f *faults) fail(what string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.err = errors.Join(f.err, fmt.Errorf("%s: %w", what, err))
		f.cancel()
	}
}

func (f *faults) run(ctx context.Context, o options) {
	during, cancel := context.WithTimeout(ctx, o.duration)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		r := random(o.seed, killStream)
		spread(ctx, r, o.kills, o.duration, func() { f.kill(ctx, r) })
	})
	all.Go(func() {
		r := random(o.seed, pauseStream)
		spread(ctx, r, o.kills/3, o.duration, func() { f.pause(ctx, r) })
	})
	all.Go(func() {
		r := random(o.seed, crashStream)
		spread(ctx, r, o.crashes, o.duration, func() { f.fail("crash the database", f.crash(ctx, r)) })
	})
	all.Go(func() {
		spread(ctx, random(o.seed, failoverStream), o.failovers, o.duration, func() {
			f.fail("fail over", f.failOver(ctx, len(f.losses) < o.failovers-1))
		})
	})
	all.Go(func() {
		f.failProvider(during, random(o.seed, providerStream), o.duration/time.Duration(max(o.orders/20, 1)))
	})
	all.Go(func() { f.reconcile(during) })
	all.Go(func() {
		r := random(o.seed, changeStream)
		spread(ctx, r, o.orders/15, o.duration, func() { f.changeAtProvider(ctx, r) })
	})
	all.Wait()
	f.background.Wait()
}

func (f *faults) kill(ctx context.Context, r *rand.Rand) {
	f.operating.RLock()
	defer f.operating.RUnlock()
	for ctx.Err() == nil { // otherwise all have ended
		s := f.system.services[r.IntN(len(f.system.services))]
		if s.kind == "reaper" && r.IntN(3) > 0 {
			continue // rarely, because the others move money
		}
		if s.signal(syscall.SIGKILL) {
			f.kills[s.kind]++
			return
		}
	}
}

// pause stops a process for up to two leases, so that others take over its keys.
func (f *faults) pause(ctx context.Context, r *rand.Rand) {
	s := f.system.services[r.IntN(len(f.system.services))]
	f.operating.RLock()
	stopped := s.signal(syscall.SIGSTOP)
	f.operating.RUnlock()
	if !stopped {
		return
	}
	f.pauses++
	pause(ctx, time.Duration(r.Int64N(int64(2*leaseDuration))))
	s.signal(syscall.SIGCONT)
}

func (f *faults) failProvider(ctx context.Context, r *rand.Rand, interval time.Duration) {
	for pause(ctx, time.Duration(r.Int64N(int64(2*interval)))) {
		f.operating.RLock()
		f.system.provider.fail(r)
		f.operating.RUnlock()
	}
}

// signal reports whether the process runs.
func (s *service) signal(signal syscall.Signal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid == 0 {
		return false
	}
	process, err := os.FindProcess(s.pid)
	return err == nil && process.Signal(signal) == nil
}

// crash kills all processes of the database except the first one, which is paused until
// the outage is over. It then recovers from the write-ahead log, as after a power
// failure.
func (f *faults) crash(ctx context.Context, r *rand.Rand) error {
	f.operating.RLock()
	defer f.operating.RUnlock()
	d := f.system.database
	if err := d.killAll(ctx, func(first *os.Process) error { return first.Signal(syscall.SIGSTOP) }); err != nil {
		return err
	}
	f.crashes++
	pause(ctx, 500*time.Millisecond+time.Duration(r.Int64N(int64(5*time.Second))))
	return syscall.Kill(d.primary.PID(), syscall.SIGCONT)
}

var fixedPattern = regexp.MustCompile(`fixed: (\d+)`)

// reconcile runs orders reconcile --fix repeatedly. Discrepancies and database errors are
// expected during faults.
func (f *faults) reconcile(ctx context.Context) {
	for pause(ctx, 10*time.Second) {
		f.operating.RLock()
		text, _ := f.system.command(ctx, "reconcile", "--fix", "--since", reconcileSince)
		f.operating.RUnlock()
		if found := fixedPattern.FindStringSubmatch(text); found != nil {
			n, _ := strconv.Atoi(found[1])
			f.runs, f.fixed = f.runs+1, f.fixed+n
		}
	}
}

func (f *faults) report(w io.Writer) {
	provider := f.system.provider
	fmt.Fprintf(w, "provider calls\t%v\n", provider.calls)
	fmt.Fprintf(w, "webhooks\t%d\t%d accepted\n", provider.delivered, provider.accepted)
	fmt.Fprintf(w, "reconcile --fix\t%d\tfixed %d\n", f.runs, f.fixed)
	total := 0
	for _, n := range f.kills {
		total += n
	}
	fmt.Fprintf(w, "kills\t%d\t%v\n", total, f.kills)
	fmt.Fprintf(w, "pauses\t%d\n", f.pauses)
	fmt.Fprintf(w, "database crashes\t%d\n", f.crashes)
	f.reportLosses(w)
	f.system.endpoint.report(w)
	fmt.Fprintf(w, "provider faults\t%d\n", f.system.provider.triggered())
}
