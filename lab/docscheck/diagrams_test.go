package docscheck_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Chromium's fonts differ between machines, so the pictures are not drawn again here.
func TestDiagrams_drawnFromTheirText(t *testing.T) {
	t.Parallel()
	texts, err := filepath.Glob("../../api/docs/diagrams/*.mmd")
	require.NoError(t, err)
	require.NotEmpty(t, texts)
	for _, path := range texts {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		picture, err := os.ReadFile(strings.TrimSuffix(path, ".mmd") + ".svg")
		require.NoError(t, err)
		sum := sha256.Sum256(text)
		require.Contains(t, string(picture), hex.EncodeToString(sum[:]), "%s has changed: run make -C lab diagrams", path)
	}
}
