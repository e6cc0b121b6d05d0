package stripetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A storedState is one line of the state file: the first is complete, each later one
// has the changes of one intent. The last line about an object applies.
type storedState struct {
	Intents []*intent
	Charges []*charge
	Refunds []*refund
	Methods []*paymentMethod
	Keys    []storedKey
}

// A storedKey has bytes, because a JSON string cannot hold invalid UTF-8.
type storedKey struct {
	Key, Path, Params []byte
	FirstUsed         time.Time
	Status            int
	Body              []byte
	Original, Retry   string
}

// Persist loads the objects and keys of a file, if it exists, and stores each change
// there before a response shows it. If the file cannot be written, connections are
// closed without a response. Faults, requests, permissions and the clock are not
// stored. One server at a time may use the file. Call Persist before the first request.
func (s *Server) Persist(file string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stripetest: %w", err)
	}
	if err := s.load(content); err != nil {
		return fmt.Errorf("stripetest: %s: %w", file, err)
	}
	s.file = file
	return s.saveAll()
}

func (s *Server) load(content []byte) error {
	var keys []storedKey
	for line := range bytes.Lines(content) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // the process was killed while it wrote this line, before a response
		}
		var stored storedState
		if err := json.Unmarshal(line, &stored); err != nil {
			return err
		}
		for _, pi := range stored.Intents {
			s.intents.put(pi)
			s.index.intents.put(pi)
		}
		for _, ch := range stored.Charges {
			s.charges.put(ch)
		}
		for _, re := range stored.Refunds {
			s.refunds.put(re)
		}
		for _, pm := range stored.Methods {
			pm.card = s.cards[pm.CardName]
			s.methods.put(pm)
		}
		keys = append(keys, stored.Keys...)
	}
	for _, ch := range s.charges.all {
		if pm, ok := s.methods.get(ch.PaymentMethod); ok {
			ch.card = pm.card
		}
		if pi, ok := s.intents.get(ch.PaymentIntent); ok {
			pi.latest, pi.LatestCharge = ch, optional(ch.ID)
		}
	}
	slices.SortStableFunc(keys, func(a, b storedKey) int { return a.FirstUsed.Compare(b.FirstUsed) })
	for _, k := range keys {
		use := keyUse{key: string(k.Key), path: string(k.Path), params: string(k.Params)}
		s.keys.begin(use, k.FirstUsed).save(&response{status: k.Status, body: k.Body, original: k.Original, retry: k.Retry})
	}
	return nil
}

// save stores a changed intent, also for searches, and the response of a key. Both may be
// nil. After an error, begin calls saveAll first.
func (s *Server) save(pi *intent, entry *savedKey) error {
	if pi != nil {
		s.index.add(pi, s.now())
	}
	if s.file == "" {
		return nil
	}
	var change storedState
	if pi != nil {
		change = s.stored(pi.ID)
	}
	if entry != nil {
		change.Keys = []storedKey{entry.stored()}
	}
	return s.saved(writeLine(s.file, os.O_APPEND, change))
}

func (s *Server) saveAll() error {
	all := s.stored("")
	for _, entry := range s.keys.byAge {
		if entry.response != nil { // a key in flight had no effect yet
			all.Keys = append(all.Keys, entry.stored())
		}
	}
	fresh := s.file + ".new"
	err := writeLine(fresh, os.O_CREATE|os.O_TRUNC, all)
	if err == nil {
		err = os.Rename(fresh, s.file)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(s.file))
	}
	return s.saved(err)
}

func (s *Server) saved(err error) error {
	s.unsaved = err != nil
	if err != nil {
		return fmt.Errorf("stripetest: store the state: %w", err)
	}
	return nil
}

func (s *Server) stored(id string) storedState {
	var found storedState
	for _, pi := range s.intents.all {
		if id == "" || pi.ID == id {
			found.Intents = append(found.Intents, pi)
		}
	}
	for _, ch := range s.charges.all {
		if id == "" || ch.PaymentIntent == id {
			found.Charges = append(found.Charges, ch)
		}
	}
	for _, re := range s.refunds.all {
		if id == "" || re.PaymentIntent == id {
			found.Refunds = append(found.Refunds, re)
		}
	}
	for _, pm := range s.methods.all {
		if id == "" || pm.UsedBy == id || string(found.Intents[0].PaymentMethod) == pm.ID {
			found.Methods = append(found.Methods, pm)
		}
	}
	return found
}

func (k *savedKey) stored() storedKey {
	return storedKey{
		Key: []byte(k.key), Path: []byte(k.path), Params: []byte(k.params), FirstUsed: k.firstUsed,
		Status: k.response.status, Body: k.response.body, Original: k.response.original, Retry: k.response.retry,
	}
}

// writeLine is durable when it returns. The file is private, because it has client
// secrets.
func writeLine(path string, how int, line storedState) error {
	content, err := json.Marshal(line)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, how|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(content, '\n'))
	return errors.Join(err, file.Sync(), file.Close())
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
