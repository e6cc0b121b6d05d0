package idempotency

import "time"

// Phase is one step of a run as it went, for those who measure.
type Phase struct {
	Operation string
	From      RecoveryPoint
	Call      time.Duration // what the foreign call took, 0 for a step without one
	Record    time.Duration // what the transaction took, with all its tries; 0 when the call failed
	Err       error         // nil when the outcome was recorded
}

func (x *execution) observe(phase Phase) {
	if x.engine.observe != nil {
		phase.Operation = x.op
		x.engine.observe(phase)
	}
}
