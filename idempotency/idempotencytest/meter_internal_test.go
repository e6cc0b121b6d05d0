package idempotencytest

import (
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

// The DataRow contains the bytes of a CommandComplete.
func TestTagReader_splitStream(t *testing.T) {
	t.Parallel()
	var stream []byte
	for _, message := range []pgproto3.BackendMessage{
		&pgproto3.BindComplete{},
		&pgproto3.DataRow{Values: [][]byte{[]byte("C\x00\x00\x00\x0bCOMMIT\x00")}},
		&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")},
		&pgproto3.CommandComplete{CommandTag: []byte("COMMIT")},
		&pgproto3.ReadyForQuery{TxStatus: 'I'},
		&pgproto3.CommandComplete{CommandTag: []byte("ROLLBACK")},
	} {
		var err error
		stream, err = message.Encode(stream)
		require.NoError(t, err)
	}
	for size := 1; size <= len(stream); size++ {
		var reader tagReader
		var tags []string
		for rest := stream; len(rest) > 0; {
			n := min(size, len(rest))
			reader.read(rest[:n], func(tag string) { tags = append(tags, tag) })
			rest = rest[n:]
		}
		require.Equal(t, []string{"SELECT 1", "COMMIT", "ROLLBACK"}, tags, "%d bytes at a time", size)
	}
}
