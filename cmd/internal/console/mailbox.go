package console

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/receipts"
)

// Mail is a receipt that was accepted.
type Mail struct {
	At      time.Time
	OrderID uuid.UUID
	To      string
	Subject string
	ID      string // Message-ID without its angle brackets
}

// maxMails is how many mails a mailbox keeps: more than any play reads.
const maxMails = 200

// Mailbox wraps the mailer that delivers receipts, and records those that it
// accepted.
type Mailbox struct {
	next receipts.Mailer

	mu    sync.Mutex
	mails []Mail // the latest, oldest first
}

// NewMailbox returns a Mailbox that sends through next.
func NewMailbox(next receipts.Mailer) (*Mailbox, error) {
	if next == nil {
		return nil, errors.New("console: a mailbox needs a mailer")
	}
	return &Mailbox{next: next}, nil
}

// Send sends the receipt and records it if it was accepted, a second copy too.
func (m *Mailbox) Send(ctx context.Context, message receipts.Message) error {
	if err := m.next.Send(ctx, message); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mails = append(m.mails[max(0, len(m.mails)-maxMails+1):], Mail{
		At:      time.Now(),
		OrderID: message.OrderID,
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
	return slices.DeleteFunc(slices.Clone(m.mails), func(mail Mail) bool { return mail.OrderID != orderID })
}
