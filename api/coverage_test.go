package api_test

import (
	"maps"
	"slices"
	"sync"
)

// sightings are the promises of the contract that some test has seen kept.
type sightings struct {
	mu   sync.Mutex
	seen map[string]bool
}

// coverage is for the whole package: TestMain asks it at the end.
var coverage = &sightings{seen: map[string]bool{}}

func (s *sightings) saw(promise string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[promise] = true
}

// missing returns the promises that nobody has seen: each status of each
// operation, each of its headers and examples, and each problem.
func (s *sightings) missing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := loadContract()
	if err != nil {
		return []string{err.Error()}
	}
	promised := map[string]bool{}
	for _, path := range c.doc.Paths.Map() {
		for _, operation := range path.Operations() {
			for status, response := range operation.Responses.Map() {
				promise := operation.OperationID + " " + status
				promised[promise] = true
				for name := range response.Value.Headers {
					promised[promise+" header "+name] = true
				}
				for _, e := range jsonExamples(response.Value.Content) {
					promised[promise+" example "+e.name] = true
				}
			}
			for _, e := range requestExamples(operation) {
				promised[operation.OperationID+" request example "+e.name] = true
			}
		}
	}
	for slug := range problems {
		promised["problem "+slug] = true
	}
	maps.DeleteFunc(promised, func(promise string, _ bool) bool { return s.seen[promise] })
	return slices.Sorted(maps.Keys(promised))
}
