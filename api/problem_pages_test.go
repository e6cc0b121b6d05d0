package api_test

import (
	"fmt"
	"html"
	"maps"
	"net/http"
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
	for _, slug := range pages {
		require.Contains(t, string(index.body), `href="/problems/`+slug+`"`)
		got := f.get(t, "/problems/"+slug, header("Authorization"))
		require.Equal(t, http.StatusOK, got.status, slug)
		text := html.UnescapeString(string(got.body))
		require.Contains(t, text, "<code>"+slug+"</code>")
		for _, value := range slices.Concat(types[slug].Outcome, types[slug].Retry) {
			require.Contains(t, text, fmt.Sprintf("<code>%v</code>: ", value), slug)
		}
		require.Contains(t, text, fmt.Sprintf("<code>%d</code>", types[slug].Status))
		require.Contains(t, text, fmt.Sprintf("<pre><code>HTTP/1.1 %d ", types[slug].Status))
		require.NotContains(t, text, "//", "the page calls no other host")
		for _, other := range pages {
			require.Equal(t, other != slug, strings.Contains(text, `href="/problems/`+other+`"`), "%s on %s", other, slug)
		}
	}
}
