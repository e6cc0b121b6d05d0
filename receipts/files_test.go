package receipts_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/receipts"
)

func TestFiles_send(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "created", "if missing")
	files, err := receipts.NewFiles(folder)
	require.NoError(t, err)

	require.NoError(t, files.Send(t.Context(), receipts.NewTestMessage(t, "Mug")))
	const name = "receipt-0b6b2c6e-8f0a-8b6e-9c55-2f1f0d6a7e11.eml"
	first, err := os.Open(filepath.Join(folder, name))
	require.NoError(t, err)
	defer first.Close()
	require.NoError(t, files.Send(t.Context(), receipts.NewTestMessage(t, "Cup")))
	raw, err := io.ReadAll(first)
	require.NoError(t, err)
	require.Contains(t, receipts.ParseMail(t, raw).Text, "Mug", "a file is replaced as a whole")

	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, name, entries[0].Name())
	raw, err = os.ReadFile(filepath.Join(folder, entries[0].Name()))
	require.NoError(t, err)
	require.Contains(t, receipts.ParseMail(t, raw).Text, "Cup")
	info, err := os.Stat(folder)
	require.NoError(t, err)
	require.Zero(t, info.Mode().Perm()&0o077, "private")
}

func TestNewFiles_cannotWrite(t *testing.T) {
	t.Parallel()
	_, err := receipts.NewFiles("/proc") // in which not even root can create a file; macOS has none
	require.Error(t, err)
}
