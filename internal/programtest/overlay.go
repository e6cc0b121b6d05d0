package programtest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var patchedFile = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)$`)

// Overlay applies a patch of the program to copies of its files. It returns the file that
// names them for go build -overlay, or an error if the patch does not apply.
func Overlay(t testing.TB, patch string) (string, error) {
	t.Helper()
	text, err := os.ReadFile(patch)
	require.NoError(t, err)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	patch, err = filepath.Abs(patch)
	require.NoError(t, err)

	folder := t.TempDir()
	replace := map[string]string{}
	for _, match := range patchedFile.FindAllSubmatch(text, -1) {
		original, changed := filepath.Join(root, string(match[1])), filepath.Join(folder, string(match[1]))
		content, err := os.ReadFile(original)
		if err != nil {
			return "", fmt.Errorf("%s no longer applies: %w", filepath.Base(patch), err)
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(changed), 0o755))
		require.NoError(t, os.WriteFile(changed, content, 0o644))
		replace[original] = changed
	}
	apply := exec.CommandContext(t.Context(), "git", "apply", patch)
	apply.Dir = folder
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(folder)) // outside any repository
	if output, err := apply.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s no longer applies: %w: %s", filepath.Base(patch), err, output)
	}

	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	file := filepath.Join(folder, "overlay.json")
	require.NoError(t, os.WriteFile(file, overlay, 0o644))
	return file, nil
}
