package api_test

import (
	"bufio"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
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
		require.NotContains(t, text, "<script")
		require.NotContains(t, text, "//", "the page calls no other host")
		require.NotContains(t, text, "`")
		require.Contains(t, text, `href="/docs"`)
		for _, other := range pages {
			require.Equal(t, other != slug, strings.Contains(text, `href="/problems/`+other+`"`), "%s on %s", other, slug)
		}
	}
}

// The example on a page is the response of the API.
func TestProblemPages_examples(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	declined := orderBody(withMember("payment_method", "pm_card_visa_chargeDeclinedInsufficientFunds"))
	for _, got := range []response{
		f.create(t, newKey(), declined),
		f.create(t, newKey(), orderBody(withMember("payment_method", "pm_card_nobody"))),
		f.create(t, newKey(), "[]"),
		f.create(t, newKey(), orderBody(withMember("email", "ada"), withMember("items", []any{map[string]any{"sku": "TEA", "quantity": 0, "unit_amount": 1250}}))),
		f.create(t, "short", orderBody()),
		f.get(t, "/v1/orders", header("Authorization")),
		f.get(t, "/v1/nothing"),
	} {
		p := got.problem(t)
		page := html.UnescapeString(string(f.get(t, p.Type).body))
		_, shown, found := strings.Cut(page, "<pre>")
		require.True(t, found)
		shown, _, _ = strings.Cut(shown, "</pre>")
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(shown)), nil)
		require.NoError(t, err)
		example, err := readResponse(resp)
		require.NoError(t, err)
		require.Equal(t, got.status, example.status)
		for name := range example.header {
			require.Equal(t, got.header[name], example.header[name], name)
		}
		var e, g any
		require.NoError(t, json.Unmarshal(example.body, &e))
		require.NoError(t, json.Unmarshal(got.body, &g))
		require.True(t, matchesExample(e, g, ""), "%s is not like %s", got.body, example.body)
	}
}

// problemTypes lists every problem that the package defines.
func TestProblemTypes_complete(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	require.NoError(t, err)
	defined := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.CompositeLit); ok {
			if name, ok := literal.Type.(*ast.Ident); ok && name.Name == "problemType" {
				defined++
			}
		}
		return true
	})
	require.Len(t, api.ProblemSlugs(), defined)
}
