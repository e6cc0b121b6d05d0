package api_test

import (
	"html"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/api"
)

// Every problem has a page, and the contract names exactly these problems.
func TestProblemPages_complete(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	pages := api.ProblemSlugs()
	require.ElementsMatch(t, slices.Collect(maps.Keys(problems)), pages)

	for _, match := range regexp.MustCompile(`/problems/([a-z]+(?:-[a-z]+)*)`).FindAllSubmatch(ordersapi.Spec, -1) {
		require.Contains(t, pages, string(match[1]))
	}
	for _, slug := range pages {
		got := f.get(t, "/problems/"+slug, header("Authorization"))
		require.Equal(t, http.StatusOK, got.status, slug)
		require.Contains(t, string(ordersapi.Spec), "`"+slug+"`")
		require.Equal(t, "text/html; charset=utf-8", got.header.Get("Content-Type"))
		text := html.UnescapeString(string(got.body))
		require.Contains(t, text, "<code>"+slug+"</code>")
		require.Contains(t, text, "<code>"+problems[slug].retry+"</code>: ")
		for _, outcome := range problems[slug].outcomes {
			require.Contains(t, text, "<code>"+outcome+"</code>: ", slug)
		}
		require.Contains(t, text, "<code>"+strconv.Itoa(problems[slug].status)+"</code>")
		require.Contains(t, text, "<pre>HTTP/1.1 "+strconv.Itoa(problems[slug].status)+" ")
		require.NotContains(t, text, "<script")
		require.NotContains(t, text, "//", "the page calls no other host")
		require.NotContains(t, text, "`")
		require.Contains(t, text, `href="/docs"`)
		for _, other := range pages {
			require.Equal(t, other != slug, strings.Contains(text, `href="/problems/`+other+`"`), "%s on %s", other, slug)
		}
	}
}
