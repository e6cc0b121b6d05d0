package orders

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Timestamp is a time as the API shows it: RFC 3339 in UTC, always with six fractional
// digits, so timestamps sort as text. PostgreSQL keeps no more digits.
type Timestamp struct{ time.Time }

// ScanTimestamptz implements [pgtype.TimestamptzScanner].
func (t *Timestamp) ScanTimestamptz(v pgtype.Timestamptz) error {
	t.Time = v.Time.UTC()
	return nil
}

// MarshalJSON writes the timestamp.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	return []byte(t.UTC().Format(`"2006-01-02T15:04:05.000000Z"`)), nil
}
