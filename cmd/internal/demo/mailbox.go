package demo

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/receipts"
)

// Mail is a receipt that was accepted.
type Mail struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
	ID      string `json:"id"`

	at      time.Time
	orderID uuid.UUID
}

const maxMails = 200

// Mailbox is a mailer that records the accepted receipts.
type Mailbox struct {
	next receipts.Mailer // sends the receipts; nil accepts them all

	mu    sync.Mutex
	mails []Mail
}

// Send sends the receipt and records each accepted copy.
func (m *Mailbox) Send(ctx context.Context, message receipts.Message) error {
	if m.next != nil {
		if err := m.next.Send(ctx, message); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mails = append(m.mails[max(0, len(m.mails)-maxMails+1):], Mail{
		at:      time.Now(),
		orderID: message.OrderID,
		To:      message.To.Address,
		Subject: message.Subject,
		ID:      message.ID,
	})
	return nil
}

// For returns the mails about an order, oldest first.
func (m *Mailbox) For(orderID uuid.UUID) []Mail {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.mails), func(mail Mail) bool { return mail.orderID != orderID })
}
