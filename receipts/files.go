package receipts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Files is a [Mailer] that writes each receipt to an .eml file.
type Files struct {
	folder string
}

// NewFiles creates a missing folder, private because receipts contain addresses.
func NewFiles(folder string) (*Files, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("receipts: %w", err)
	}
	return &Files{folder: folder}, nil
}

// Send writes receipt-<order id>.eml atomically.
func (f *Files) Send(_ context.Context, message Message) error {
	temporary, err := os.CreateTemp(f.folder, ".receipt-*.tmp")
	if err != nil {
		return fmt.Errorf("receipts: %w", err)
	}
	_, err = message.mime().WriteTo(temporary)
	err = errors.Join(err, temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), filepath.Join(f.folder, "receipt-"+message.OrderID.String()+".eml"))
	}
	if err != nil {
		return fmt.Errorf("receipts: write file: %w", errors.Join(err, os.Remove(temporary.Name())))
	}
	return nil
}
