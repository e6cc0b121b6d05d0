package main

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/payments/stripetest"
)

// check compares the answers with the fake's ledger and the peer's tables.
func (c *customers) check(ctx context.Context, stripe *stripetest.Server, f *outcome) error {
	charges := map[int64]int{} // by amount
	for _, charge := range stripe.Charges() {
		charges[charge.Amount]++
	}
	paid := map[string]bool{}
	rows, err := c.pool.Query(ctx, "SELECT id::text, amount, status FROM orders")
	if err != nil {
		return err
	}
	defer rows.Close()
	amounts := map[int64]bool{}
	for _, p := range c.purchases {
		amounts[p.amount] = true
	}
	for rows.Next() {
		var id, status string
		var amount int64
		if err := rows.Scan(&id, &amount, &status); err != nil {
			return err
		}
		paid[id] = status == "paid"
		if status == "pending" && amounts[amount] {
			f.Pending++
		}
	}
	var waits []time.Duration
	for _, p := range c.purchases {
		f.Purchases++
		if p.interrupted {
			f.Interrupted++
			if p.final != nil {
				waits = append(waits, p.took)
			}
		}
		f.add(p, charges[p.amount], paid)
	}
	if len(waits) > 0 {
		slices.Sort(waits)
		f.P50, f.Slowest = waits[len(waits)/2].Seconds(), waits[len(waits)-1].Seconds()
	}
	return rows.Err()
}

func (f *outcome) add(p *purchase, charges int, paid map[string]bool) {
	if charges > 1 {
		f.Doubled++
	}
	unpaid := false
	switch {
	case p.final == nil:
		f.Stuck++
		unpaid = true
	case p.final.Status == http.StatusCreated && (charges == 0 || !paid[orderID(*p.final)]):
		f.Lost++
	case p.final.Status != expected(p), p.again == nil, p.again.Status != p.final.Status, orderID(*p.again) != orderID(*p.final):
		f.Wrong++
		unpaid = p.final.Status != http.StatusCreated
	}
	if unpaid && charges > 0 {
		f.Charged++
	}
}

func expected(p *purchase) int {
	if p.declined {
		return http.StatusPaymentRequired
	}
	return http.StatusCreated
}

func orderID(r client.Response) string {
	var order struct{ ID string }
	_ = json.Unmarshal(r.Body, &order) // other responses have no id
	return order.ID
}
