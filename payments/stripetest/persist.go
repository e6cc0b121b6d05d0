package stripetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// A storedChange is a line of the file: an intent with what belongs to it, or a key.
type storedChange struct {
	Intent   *intent
	Charges  []*Charge
	Refunds  []*Refund
	Disputes []*Dispute
	Methods  []*paymentMethod
	Key      *savedKey
}

// Persist loads a file, if it exists, and appends each change before a response shows it.
// After a failed write, no request gets a response. Call it before the first request.
func (s *Server) Persist(file string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stripetest: %w", err)
	}
	// A process that was killed during a line had sent no response.
	whole := content[:bytes.LastIndexByte(content, '\n')+1]
	if err := s.load(whole); err != nil {
		return fmt.Errorf("stripetest: %s: %w", file, err)
	}
	if len(whole) < len(content) {
		if err := os.Truncate(file, int64(len(whole))); err != nil {
			return fmt.Errorf("stripetest: %w", err)
		}
	}
	s.file = file
	return s.save(nil, nil) // shows whether the file can be written
}

func (s *Server) load(content []byte) error {
	for line := range bytes.Lines(content) {
		var stored storedChange
		if err := json.Unmarshal(line, &stored); err != nil {
			return err
		}
		if pi := stored.Intent; pi != nil {
			pi.versions = []version{{intent: *pi}} // a search finds it at once
			s.putIntent(pi)
		}
		for _, pm := range stored.Methods {
			s.methods.put(pm)
		}
		for _, ch := range stored.Charges {
			ch.OrderID = ch.Metadata["order_id"]
			s.charges.put(ch)
		}
		for _, re := range stored.Refunds {
			re.Name = re.Metadata["refund_id"]
			s.refunds.put(re)
		}
		for _, d := range stored.Disputes {
			d.set(d.Status) // all that a file of an earlier version has
			s.disputes.put(d)
		}
		if stored.Key != nil {
			s.keys[string(stored.Key.Key)] = stored.Key
		}
	}
	return nil
}

func (s *Server) save(pi *intent, entry *savedKey) error {
	if pi != nil {
		pi.versions = append(pi.versions, version{s.now(), *pi})
	}
	if s.file == "" || s.failed != nil {
		return s.failed
	}
	change := storedChange{Intent: pi, Key: entry}
	if pi != nil {
		change.Charges = slices.DeleteFunc(s.charges.all(), func(ch *Charge) bool { return ch.IntentID != pi.ID })
		change.Refunds = slices.DeleteFunc(s.refunds.all(), func(re *Refund) bool { return re.IntentID != pi.ID })
		change.Disputes = slices.DeleteFunc(s.disputes.all(), func(d *Dispute) bool { return d.IntentID != pi.ID })
		change.Methods = slices.DeleteFunc(s.methods.all(), func(pm *paymentMethod) bool {
			return pm.UsedBy != pi.ID && pm.ID != string(pi.PaymentMethod)
		})
	}
	if err := appendLine(s.file, change); err != nil {
		s.failed = fmt.Errorf("stripetest: store the state: %w", err)
	}
	return s.failed
}

// appendLine is durable when it returns. The file has client secrets, so it is private.
func appendLine(path string, line storedChange) error {
	content, err := json.Marshal(line)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(content, '\n'))
	return errors.Join(err, file.Sync(), file.Close())
}
