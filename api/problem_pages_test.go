package api_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/api"
)

func TestProblemPages_complete(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	types := api.DocumentedProblems()
	pages := slices.Collect(maps.Keys(types))
	for _, match := range regexp.MustCompile(`/problems/([a-z]+(?:-[a-z]+)*)`).FindAllSubmatch(ordersapi.Spec, -1) {
		require.Contains(t, pages, string(match[1]))
	}
	index := f.get(t, "/problems", header("Authorization"))
	require.Equal(t, http.StatusOK, index.status)
	require.Equal(t, len(pages), strings.Count(string(index.body), "\n"))
	for slug, documented := range types {
		require.Regexp(t, fmt.Sprintf(`(?m)^%d +%s +/problems/%s$`, documented.Status, strings.Join(documented.Retry, ", "), slug), string(index.body))
		got := f.get(t, "/problems/"+slug, header("Authorization"))
		require.Equal(t, http.StatusOK, got.status, slug)
		require.Equal(t, "text/plain; charset=utf-8", got.header.Get("Content-Type"))
		text, err := os.ReadFile("problems/" + slug + ".md")
		require.NoError(t, err)
		require.Equal(t, string(text), string(got.body))
		require.Contains(t, string(text), fmt.Sprintf("\n    HTTP/1.1 %d ", documented.Status))
		require.NotContains(t, string(text), "//", "the page names no other host")
		for _, related := range regexp.MustCompile(`\]\(([^)]*)\.md\)`).FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, pages, related[1], slug)
		}
	}
}
