//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/client"
	"example.com/orders-api/lab/soak/history"
	"example.com/orders-api/orders/reconcile"
)

// loss is what a failover lost, and what the runbook's commands named.
type loss struct {
	from, until  time.Time       // responses in between may be of lost rows
	acknowledged []string        // orders and refunds of a 201, and challenges, that the database lost for good
	named        map[string]bool // orders and refunds in the output of the commands
	expired      map[string]bool // orders whose key --fix expired; their charges are then refunded
	cancelled    map[string]bool // orders whose intent --fix cancelled
	retried      int             // orders that customers were asked to retry
	fixing       time.Time       // when --fix began to expire keys
	fixed        time.Time
}

// failOver loses the rows of a second, and then follows docs/runbook.md#lost-rows. After the
// first failover, half of the named orders are retried before the keys of the others are
// expired; after the second one, all keys are expired at once. If another failover is to
// come, a new standby follows.
func (f *faults) failOver(ctx context.Context, another bool) error {
	f.operating.Lock()
	defer f.operating.Unlock()
	s := f.system
	l := &loss{named: map[string]bool{}, expired: map[string]bool{}, cancelled: map[string]bool{}}
	f.losses = append(f.losses, l)
	var err error
	if l.from, err = s.database.failOver(ctx); err != nil {
		return err
	}
	pause(ctx, 2*time.Second) // the services use the new primary until an operator acts
	f.closed.Lock()
	defer f.closed.Unlock()
	f.stop(ctx)
	l.until = time.Now()
	s.history.Add(history.Operation{Kind: history.Failover, Call: s.history.At(l.from), Return: s.history.At(l.until)})
	report, err := f.lostRows(ctx, l)
	if err != nil {
		return err
	}
	// The command has brought back the lost refunds of orders that are there, and does not name them.
	if l.acknowledged, err = f.lost(ctx); err != nil {
		return err
	}
	if len(f.losses)%2 == 1 { // the client retries in time
		if err := s.startServices(ctx); err != nil {
			return err
		}
		f.retryHalf(ctx, l, report)
		f.stop(ctx)
	}
	l.fixing = time.Now()
	if report, err = f.lostRows(ctx, l, "--fix"); err != nil {
		return err
	}
	l.fixed = time.Now()
	if err := f.refundCharges(ctx, l, report); err != nil {
		return err
	}
	if another {
		if err := s.database.addStandby(ctx); err != nil {
			return err
		}
	}
	f.background.Go(func() { f.inform(ctx, l, report) })
	return s.startServices(ctx)
}

// stop stops the services, and waits until the provider has processed the last requests.
func (f *faults) stop(ctx context.Context) {
	f.system.stopServices()
	f.system.provider.release()
	pause(ctx, 3*time.Second)
}

// lostRows runs the command of the runbook until it is complete, and records what it
// names. A fix is repeated for what changed meanwhile, such as an approved payment.
func (f *faults) lostRows(ctx context.Context, l *loss, fix ...string) (reconcile.Report, error) {
	var all reconcile.Report
	var failed error
	for range 20 {
		report, err := f.system.reconcile(ctx, append([]string{"--lost-rows", "--since", "24h"}, fix...)...)
		if failed = err; err != nil {
			if !pause(ctx, time.Second) {
				return all, err
			}
			continue // the provider failed
		}
		again := false
		for _, d := range report.Discrepancies {
			for _, id := range []uuid.UUID{d.OrderID, d.RefundID} {
				if id != uuid.Nil {
					l.named[id.String()] = true
				}
			}
			if strings.HasSuffix(d.Detail, ", key expired") {
				l.expired[d.OrderID.String()] = true
			}
			if d.Kind == reconcile.OrphanedIntent && d.Fixed {
				l.cancelled[d.OrderID.String()] = true
			}
			again = again || d.FixError != ""
		}
		all.Discrepancies = append(all.Discrepancies, report.Discrepancies...)
		if !again {
			return all, nil
		}
	}
	return all, errors.Join(errors.New("reconcile --lost-rows does not complete"), failed)
}

// reconcile returns the report of a complete comparison, and adds it to the logs.
// Discrepancies are no error.
func (s *system) reconcile(ctx context.Context, args ...string) (report reconcile.Report, err error) {
	text, err := s.command(ctx, append([]string{"reconcile"}, args...)...)
	if failed, ok := errors.AsType[*exec.ExitError](err); ok && failed.ExitCode() == 1 {
		err = nil
	}
	if err != nil {
		return report, err
	}
	log, err := os.OpenFile(filepath.Join(s.folder, "reconcile.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return report, err
	}
	_, err = fmt.Fprintf(log, "%s\n%s", args, text)
	found, _, complete := strings.Cut(text, "Compared ")
	if err = errors.Join(err, log.Close()); err == nil && !complete {
		err = errors.New("reconcile compared nothing")
	}
	for decoder := json.NewDecoder(strings.NewReader(found)); err == nil && decoder.More(); {
		var d reconcile.Discrepancy
		err = decoder.Decode(&d)
		report.Discrepancies = append(report.Discrepancies, d)
	}
	return report, err
}

// lost returns what clients know and the database does not have: orders and refunds of a
// 201, and orders of which the customer can still approve the payment.
func (f *faults) lost(ctx context.Context) ([]string, error) {
	created, challenges := f.customers.acknowledged()
	const missing = `
SELECT known.id
  FROM unnest($1::text[]) AS known (id)
 WHERE NOT EXISTS (SELECT FROM orders WHERE id = known.id::uuid)
   AND NOT EXISTS (SELECT FROM refunds WHERE id = known.id::uuid)`
	lost, err := f.system.database.rows(ctx, missing, created)
	if err != nil {
		return nil, err
	}
	open, err := f.system.database.rows(ctx, missing, slices.Collect(maps.Keys(challenges)))
	for _, order := range open {
		if f.system.provider.chargeable(ctx, challenges[order]) {
			lost = append(lost, order)
		}
	}
	return lost, err
}

// retryHalf asks the accounts to retry the orders that the commands named.
func (f *faults) retryHalf(ctx context.Context, l *loss, report reconcile.Report) {
	ctx, cancel := context.WithTimeout(ctx, leaseDuration)
	defer cancel()
	var all sync.WaitGroup
	for i, d := range report.Discrepancies {
		p := f.customers.purchaseOf(d.OrderID.String())
		if d.Kind != reconcile.UnrecordedCharge || p == nil || i%2 == 1 {
			continue
		}
		l.retried++
		all.Go(func() {
			f.customers.insist(ctx, p.account, client.Request{Key: p.key, Path: "/v1/orders", Body: p.body})
		})
	}
	all.Wait()
}

// refundCharges refunds the lost charges at the provider, as an operator does.
func (f *faults) refundCharges(ctx context.Context, l *loss, report reconcile.Report) error {
	for _, d := range report.Discrepancies {
		if d.Kind != reconcile.UnrecordedCharge || !l.expired[d.OrderID.String()] {
			continue
		}
		if err := f.system.provider.refund(ctx, d.IntentID); err != nil {
			return fmt.Errorf("refund %s: %w", d.IntentID, err)
		}
	}
	return nil
}

// inform lets customers send lost orders again with new keys, and lost refunds with their
// keys.
func (f *faults) inform(ctx context.Context, l *loss, report reconcile.Report) {
	var all sync.WaitGroup
	for _, d := range report.Discrepancies {
		order := d.OrderID.String()
		p := f.customers.purchaseOf(order)
		switch {
		case p == nil:
		case l.expired[order]:
			all.Go(func() { f.customers.buyAgain(ctx, p) })
		case d.Kind == reconcile.UnrecordedRefund:
			all.Go(func() { f.customers.refund(ctx, p, order) })
		}
	}
	all.Wait()
}

// recordExpiries adds the keys that an operator has expired.
func recordExpiries(h *history.Recorder, losses []*loss, purchases []*purchase) {
	for _, p := range purchases {
		for ; p != nil; p = p.again {
			for _, l := range losses {
				if p.replay != nil && l.expired[p.created] {
					h.Add(history.Operation{
						Kind: history.Expire, Account: p.account, Key: string(p.key), Call: h.At(l.fixing), Return: h.At(l.fixed),
					})
				}
			}
		}
	}
}

func (f *faults) reportLosses(w io.Writer) {
	for _, l := range f.losses {
		fmt.Fprintf(w, "failover\t%d acknowledged orders, refunds and challenges lost\t%d named, %d asked to retry, %d keys expired, %d intents cancelled\n",
			len(l.acknowledged), len(l.named), l.retried, len(l.expired), len(l.cancelled))
	}
}
