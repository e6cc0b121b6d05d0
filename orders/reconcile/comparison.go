package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/orders/provider"
	"example.com/orders-api/payments"
)

const (
	missing    = "missing"    // status of a record or object that does not exist
	unreadable = "unreadable" // status of an object that exists, and of which nothing else is known
)

type comparison[P any] struct {
	*run
	object, record string // the words for P and for our record
	selectRecords  string

	list  func(ctx context.Context, since, until time.Time, after string) (page []P, next string, err error)
	get   func(ctx context.Context, id string) (P, error)
	state func(P) providerState

	// payment reads the payment of a refund, and is nil for payments.
	payment func(ctx context.Context, intentID string) (providerState, error)

	classify func(localState, providerState) Kind

	listed                          map[uuid.UUID]struct{} // records whose object was listed
	ours, foreign, unknown, records int
}

// metadataIDs are the ids in an object's metadata. They are zero for an object of another program.
type metadataIDs struct{ accountID, recordID, orderID, keyID uuid.UUID }

func idsOf(m provider.Metadata, recordID uuid.UUID) metadataIDs {
	if slices.Contains([]uuid.UUID{m.AccountID, recordID, m.OrderID, m.KeyID}, uuid.Nil) {
		return metadataIDs{}
	}
	return metadataIDs{m.AccountID, recordID, m.OrderID, m.KeyID}
}

type providerState struct {
	metadataIDs
	id       string
	intentID string // the payment of a refund
	status   string
	money    Money
	created  time.Time
}

// localState is an order or a refund, and the state of its key unless the key was reaped.
type localState struct {
	metadataIDs
	status     string
	money      Money
	providerID string // the recorded intent or refund, "" if none
	createdAt  time.Time

	finishedAt, lockedAt, lastRunAt *time.Time
	responseCode                    int
	unfinished                      bool // false also without a key
}

func (c *comparison[P]) compareListed(ctx context.Context) error {
	c.listed = map[uuid.UUID]struct{}{}
	for after := ""; ; {
		objects, next, err := c.list(ctx, c.report.Since.Add(-provider.ClockSkew), time.Time{}, after)
		unread := payments.UnreadableIDs(err)
		if err != nil && unread == nil {
			return fmt.Errorf("list the provider's %ss: %w", c.object, err)
		}
		if err := c.recordUnreadable(ctx, unread); err != nil {
			return err
		}
		var page []providerState
		for _, object := range objects {
			page = append(page, c.state(object))
		}
		if err := c.comparePage(ctx, page); err != nil {
			return err
		}
		if after = next; after == "" {
			return nil
		}
	}
}

// checkProviderAccount is for an empty list, which may be that of another of the provider's accounts.
func (c *comparison[P]) checkProviderAccount(ctx context.Context) error {
	if c.ours > 0 {
		return nil
	}
	return c.Orders.CheckProviderAccount(ctx, uuid.Nil)
}

func (c *comparison[P]) comparePage(ctx context.Context, page []providerState) error {
	for i, p := range page {
		if c.payment != nil && p.accountID == uuid.Nil && p.intentID != "" { // made at the provider's dashboard
			payment, err := c.payment(ctx, p.intentID)
			if err != nil {
				return err
			}
			page[i].accountID, page[i].orderID = payment.accountID, payment.orderID
		}
	}
	locals, err := c.load(ctx, page)
	if err != nil {
		return err
	}
	for i, l := range locals {
		if l.accountID == uuid.Nil {
			c.foreign++
			continue
		}
		if !c.hasAccount(l.accountID) {
			c.unknown++
			if !c.LostRows { // probably of another database
				continue
			}
		}
		if l.providerID == page[i].id {
			c.listed[l.recordID] = struct{}{}
		}
		c.ours++
		if err := c.compare(ctx, l, page[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison[P]) compareRecords(ctx context.Context) error {
	newest := c.report.Until
	if c.LostRows {
		newest = newest.Add(provider.ClockSkew) // the lost primary's clock may have been ahead
	}
	for _, accountID := range c.accounts {
		last := localState{metadataIDs: metadataIDs{accountID: accountID, recordID: uuid.Max}, createdAt: newest}
		for more := true; more; {
			page, err := c.recordsBefore(ctx, last)
			if err != nil {
				return err
			}
			for _, last = range page {
				if err := c.compareRecord(ctx, last); err != nil {
					return err
				}
			}
			more = len(page) == recordPage
		}
	}
	return nil
}

func (c *comparison[P]) compareRecord(ctx context.Context, l localState) error {
	_, listed := c.listed[l.recordID]
	absent := providerState{id: l.providerID, status: missing}
	c.records++
	switch {
	case l.unfinished:
		return nil // a run of the key is responsible
	case l.providerID == "", c.classify(l, absent) == OrphanedRecord:
		return c.compare(ctx, l, absent)
	case listed:
		return nil
	}
	p, err := c.read(ctx, l.providerID)
	if err != nil {
		return err
	}
	return c.compare(ctx, l, p)
}

func (c *comparison[P]) compare(ctx context.Context, l localState, p providerState) error {
	kind := c.check(l, p)
	var err error
	if kind == RefundStatusChanged { // it may have changed since the list was read
		kind, err = c.recheck(ctx, l.metadataIDs, p.id)
	}
	if err == nil && kind != "" {
		c.add(kind, l, p)
	}
	return err
}

func (c *comparison[P]) check(l localState, p providerState) Kind {
	if c.isRecent(l, p) || p.status == unreadable {
		return ""
	}
	if p.recordID != l.recordID && !c.isOfProvider(l, p.id) {
		p.status = missing
	}
	return c.classify(l, p)
}

// isOfProvider reports whether our record is that of a refund which does not name it, because it was made
// at the provider's dashboard.
func (c *comparison[P]) isOfProvider(l localState, providerID string) bool {
	return c.payment != nil && providerID != "" && l.providerID == providerID
}

// isRecent reports whether a run may have been active since Until. A time in the far future does not
// count, because it was set while a clock ran ahead.
func (c *comparison[P]) isRecent(l localState, p providerState) bool {
	if c.LostRows {
		return false // no run is active
	}
	future := c.report.Until.Add(c.Grace + time.Since(c.began) + provider.ClockSkew)
	times := []*time.Time{&l.createdAt, &p.created, l.finishedAt, l.lockedAt, l.lastRunAt}
	return slices.ContainsFunc(times, func(at *time.Time) bool {
		return at != nil && at.After(c.report.Until) && at.Before(future)
	})
}

func (c *comparison[P]) recheck(ctx context.Context, ids metadataIDs, providerID string) (Kind, error) {
	l, p, err := c.readBoth(ctx, ids, providerID)
	if err == nil && p.status == unreadable {
		err = fmt.Errorf("%s is unreadable", providerID)
	}
	if err != nil {
		return "", err
	}
	return c.check(l, p), nil
}

func (c *comparison[P]) readBoth(ctx context.Context, ids metadataIDs, providerID string) (l localState, p providerState, err error) {
	p = providerState{id: providerID, status: missing}
	if providerID != "" {
		p, err = c.read(ctx, providerID)
	}
	if err != nil {
		return l, p, err
	}
	locals, err := c.load(ctx, []providerState{{metadataIDs: ids, id: providerID}})
	if err != nil {
		return l, p, err
	}
	return locals[0], p, nil
}

func (c *comparison[P]) read(ctx context.Context, id string) (providerState, error) {
	object, err := c.get(ctx, id)
	if failed, ok := errors.AsType[*payments.Error](err); ok && failed.Code == "resource_missing" {
		return providerState{id: id, status: missing}, nil
	}
	if slices.Contains(payments.UnreadableIDs(err), id) {
		return providerState{id: id, status: unreadable}, c.recordUnreadable(ctx, []string{id})
	}
	if err != nil {
		return providerState{}, fmt.Errorf("get %s: %w", id, err)
	}
	return c.state(object), nil
}

func (c *comparison[P]) add(kind Kind, l localState, p providerState) {
	facts := []string{c.object + " " + p.status, c.record + " " + l.status}
	if p.recordID != l.recordID && p.recordID != uuid.Nil {
		facts[0] += " of another " + c.record
	}
	if !c.hasAccount(l.accountID) {
		facts = append(facts, "unknown account")
	}
	if l.responseCode != 0 {
		facts = append(facts, fmt.Sprintf("response %d", l.responseCode))
	}
	if kind == OrphanedRecord {
		facts = facts[1:] // no object was read
	}
	d := Discrepancy{
		Kind: kind, AccountID: l.accountID, OrderID: l.orderID, KeyID: l.keyID, IntentID: p.id,
		Local: l.money, Provider: p.money, Created: p.created, Detail: strings.Join(facts, ", "),
	}
	if c.payment != nil {
		d.IntentID, d.RefundID, d.ProviderRefundID = p.intentID, l.recordID, p.id
	}
	c.report.Discrepancies = append(c.report.Discrepancies, d)
}

func (r *run) hasAccount(id uuid.UUID) bool { return slices.Contains(r.accounts, id) }
