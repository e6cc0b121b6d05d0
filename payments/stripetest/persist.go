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

type storedState struct {
	Intents []*intent
	Charges []*charge
	Refunds []*refund
	Methods []*paymentMethod
	Keys    []*savedKey
}

// Persist loads a file, if it exists, and appends each change before a response shows it.
// After a failed write, all connections are closed without a response. Call it before the
// first request, and for one server at a time.
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
		var stored storedState
		if err := json.Unmarshal(line, &stored); err != nil {
			return err
		}
		for _, pi := range stored.Intents {
			pi.versions = []version{{intent: *pi}} // a search finds it at once
			s.intents.put(pi)
		}
		for _, pm := range stored.Methods {
			pm.card = s.cards[pm.CardName]
			s.methods.put(pm)
		}
		for _, ch := range stored.Charges {
			s.charges.put(ch)
		}
		for _, re := range stored.Refunds {
			s.refunds.put(re)
		}
		for _, k := range stored.Keys {
			s.keys[string(k.Key)] = k
		}
	}
	for _, ch := range s.charges.all() {
		if pm, ok := s.methods.byID[ch.PaymentMethod]; ok {
			ch.card = pm.card
		}
		if pi, ok := s.intents.byID[ch.PaymentIntent]; ok {
			pi.latest, pi.LatestCharge = ch, optional(ch.ID)
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
	var change storedState
	if pi != nil {
		change = s.stored(pi)
	}
	if entry != nil {
		change.Keys = []*savedKey{entry}
	}
	if err := appendLine(s.file, change); err != nil {
		s.failed = fmt.Errorf("stripetest: store the state: %w", err)
	}
	return s.failed
}

func (s *Server) stored(pi *intent) storedState {
	return storedState{
		Intents: []*intent{pi},
		Charges: slices.DeleteFunc(s.charges.all(), func(ch *charge) bool { return ch.PaymentIntent != pi.ID }),
		Refunds: slices.DeleteFunc(s.refunds.all(), func(re *refund) bool { return re.PaymentIntent != pi.ID }),
		Methods: slices.DeleteFunc(s.methods.all(), func(pm *paymentMethod) bool {
			return pm.UsedBy != pi.ID && pm.ID != string(pi.PaymentMethod)
		}),
	}
}

// appendLine is durable when it returns. The file has client secrets, so it is private.
func appendLine(path string, line storedState) error {
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
