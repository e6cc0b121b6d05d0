package docscheck_test

import (
	"io/fs"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
)

// A stop of the tour whose function was renamed or moved would lead a reader nowhere.
func TestCodeTour(t *testing.T) {
	t.Parallel()
	const tour = "docs/code-tour.md"
	page, err := fs.ReadFile(root, tour)
	require.NoError(t, err)
	stops := codeLink.FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, stops)
	for _, stop := range stops {
		_, err := declarationOf(root, path.Join(path.Dir(tour), stop[2]), stop[1])
		require.NoError(t, err, "%s: %s", tour, stop[1])
	}
}
