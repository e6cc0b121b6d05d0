package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"github.com/wneessen/go-mail"

	"example.com/orders-api/receipts"
)

// mailer returns the mailer of SMTP_URL, or one that writes files, because a developer's machine has no
// mail server.
func (p playground) mailer(ctx context.Context) (receipts.Mailer, error) {
	if p.config.SMTPURL != "" {
		return p.config.Mailer(ctx, p.logger)
	}
	folder := filepath.Join(p.folder, "receipts")
	p.logger.InfoContext(ctx, "receipts are written as .eml files, because SMTP_URL is not set", "folder", folder)
	return files{folder}, os.MkdirAll(folder, 0o700)
}

// files is a [receipts.Mailer] that writes each receipt to an .eml file in a folder.
type files struct{ folder string }

// Send renames a complete file, so that no reader finds a part of a receipt.
func (f files) Send(_ context.Context, orderID uuid.UUID, receipt *mail.Msg) error {
	name := "receipt-" + orderID.String() + ".eml"
	part := filepath.Join(f.folder, "."+name)
	err := receipt.WriteToFile(part)
	if err == nil {
		err = os.Rename(part, filepath.Join(f.folder, name))
	}
	if err != nil {
		return fmt.Errorf("write receipt: %w", err)
	}
	return nil
}
