package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/payments"
)

var update = flag.Bool("update", false, "write the generated parts of openapi.yaml and the examples in problems")

const exampleOrder = "3eeb7e96-e59c-840f-9cb1-a089daba079f"

// exampleErrors are the errors in the examples. The pages of the other types have their own examples: of stored
// responses, of an operation's rejections, and of nginx.
var exampleErrors = map[string]error{
	"idempotency-key-missing":     errKeyMissing,
	"idempotency-key-invalid":     idempotency.ErrInvalidKey,
	"malformed-request":           fmt.Errorf("%w: the body must be a JSON object", idempotency.ErrMalformed),
	"unauthorized":                accounts.ErrUnauthorized,
	"not-found":                   httpjson.ErrNotFound,
	"method-not-allowed":          errMethodNotAllowed,
	"idempotency-key-in-progress": idempotency.ErrInProgress,
	"too-large":                   fmt.Errorf("%w: at most 64 KiB are allowed here", errTooLarge),
	"unsupported-media-type":      errUnsupportedMedia,
	"idempotency-key-reused":      idempotency.ErrKeyReused,
	"idempotency-key-expired": &keyedError{error: &idempotency.KeyExpiredError{}, created: httpjson.Links{
		"order": {ID: uuid.MustParse(exampleOrder)},
	}},
	"validation-failed": &keyedError{error: &httpjson.InvalidError{Fields: []httpjson.Field{
		{Pointer: "/items/0/quantity", Code: httpjson.CodeOutOfRange, Detail: "must be from 1 to 10000"},
		{Pointer: "/email", Code: httpjson.CodeInvalidFormat, Detail: "must be an email address such as ada@example.com"},
	}}},
	"internal-error":          errors.New("an unexpected error"),
	"payment-outcome-unknown": &httpjson.ProviderError{Kind: httpjson.ErrOutcomeUnknown},
	"temporarily-unavailable": postgres.ErrUnavailable,
}

// documentedType is a type with the example of its page.
type documentedType struct {
	problemType
	example []byte // JSON
}

var exampleDocument = regexp.MustCompile(`(?s)\n    \{\n.*\n    \}\n`)

func documentedTypes(t *testing.T) (documented []documentedType) {
	t.Helper()
	for _, p := range problemTypes() {
		d := documentedType{problemType: p}
		d.example = exampleDocument.Find(p.Text)
		require.NotNil(t, d.example, "problems/%s.md has no example: copy one, and make generate replaces it", p.Slug)
		if err := exampleErrors[p.Slug]; err != nil {
			d.example = exampleOf(t, p.Slug, err)
		}
		documented = append(documented, d)
	}
	return documented
}

// exampleOf returns the response with the error.
func exampleOf(t *testing.T, slug string, err error) []byte {
	t.Helper()
	request := httptest.NewRequest(http.MethodPost, "/", nil)
	if !strings.Contains("idempotency-key-missing not-found method-not-allowed", slug) {
		request.Header.Set("Idempotency-Key", "8f14e45f-ceea-467f-a9d4-1f6b7c3e2d10")
	}
	p := problemOf(err).forRequest(request, err)
	p.RequestID = "3JQ6ZB7XKPLRWA4DM2VHSTN5EY"
	compact, err := json.Marshal(p)
	require.NoError(t, err)
	var indented bytes.Buffer
	require.NoError(t, json.Indent(&indented, compact, "    ", "  "))
	return []byte("\n    " + indented.String() + "\n")
}

func TestGenerated(t *testing.T) {
	t.Parallel()
	types := documentedTypes(t)
	for _, p := range types {
		file := "problems/" + p.Slug + ".md"
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		requireGenerated(t, file, string(content), exampleDocument.ReplaceAllLiteralString(string(content), string(p.example)))
	}
	const file = "../openapi.yaml"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	const begin, end = "    # problem examples: begin\n", "    # problem examples: end\n"
	before, rest, begins := strings.Cut(string(text), begin)
	_, after, ends := strings.Cut(rest, end)
	require.True(t, begins && ends, "%s has no lines %s and %s", file, begin, end)
	generated := withCurrencies(t, before) + begin + problemExamples(t, types) + end + after
	require.NoError(t, yaml.Unmarshal([]byte(generated), new(map[string]any)), file) // which rejects a duplicate key
	requireGenerated(t, file, string(text), generated)
}

func requireGenerated(t *testing.T, file, text, want string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
		return
	}
	require.True(t, want == text, "%s is out of date: run make generate and look at the difference", file)
}

func schemaName(slug string) string {
	slug = strings.TrimPrefix(slug, "idempotency-")
	slug = strings.TrimSuffix(strings.TrimSuffix(slug, "-failed"), "-error")
	return camel(strings.Split(slug, "-"))
}

func camel(words []string) string {
	var name strings.Builder
	for _, word := range words {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return name.String()
}

func problemExamples(t *testing.T, types []documentedType) string {
	t.Helper()
	var examples strings.Builder
	for _, p := range types {
		fmt.Fprintf(&examples, "    %sProblem:\n      summary: %q\n      value:\n", schemaName(p.Slug), p.Title)
		var value yaml.Node // keeps the order of members
		require.NoError(t, yaml.Unmarshal(p.example, &value))
		inBlocks(&value)
		var text bytes.Buffer
		encoder := yaml.NewEncoder(&text)
		encoder.SetIndent(2)
		require.NoError(t, encoder.Encode(&value))
		for line := range strings.Lines(text.String()) {
			examples.WriteString("        " + line)
		}
	}
	return examples.String()
}

func inBlocks(node *yaml.Node) {
	node.Style = 0
	for _, child := range node.Content {
		inBlocks(child)
	}
}

var currencyRows = regexp.MustCompile(`(    \| currencies \|.*\n    \| ---.*\n)(?:    \|.*\n)*`)

// withCurrencies replaces the rows of the contract's table of currencies by those of package payments.
func withCurrencies(t *testing.T, contract string) string {
	t.Helper()
	require.Len(t, currencyRows.FindAllString(contract, -1), 1, "the contract has a table of currencies")
	codes := map[payments.Currency][]string{}
	const letters = "abcdefghijklmnopqrstuvwxyz"
	for _, first := range letters {
		for _, second := range letters {
			for _, third := range letters {
				code := string([]rune{first, second, third})
				if c, known := payments.FindCurrency(code); known {
					codes[c] = append(codes[c], code)
				}
			}
		}
	}
	var rows strings.Builder
	for _, c := range slices.SortedFunc(maps.Keys(codes), func(a, b payments.Currency) int {
		return cmp.Or(a.Decimals-b.Decimals, cmp.Compare(a.Minimum, b.Minimum), cmp.Compare(a.Maximum, b.Maximum), cmp.Compare(a.Step, b.Step))
	}) {
		fmt.Fprintf(&rows, "    | %s | %d | %d | %d | %d |\n", strings.Join(codes[c], " "), c.Decimals, c.Minimum, c.Maximum, c.Step)
	}
	return currencyRows.ReplaceAllString(contract, "${1}"+rows.String())
}

func TestProblemTypes_complete(t *testing.T) {
	t.Parallel()
	for slug := range exampleErrors {
		require.NotNil(t, problemTypeOf(slug), slug)
	}
	for _, row := range problemRows {
		require.NotNil(t, problemTypeOf(row.slug), "problems/%s.md", row.slug)
	}
	for _, p := range documentedTypes(t) {
		if p.Slug == "rate-limited" { // deploy/nginx answers it
			continue
		}
		if p.Retry == "new-key" {
			require.NoError(t, exampleErrors[p.Slug], "%s: only a stored response ends a key", p.Slug)
		}
		var shown problem
		require.NoError(t, json.Unmarshal(p.example, &shown))
		require.Equal(t, []any{"/problems/" + p.Slug, p.Title, p.Status, p.Retry}, []any{shown.Type, shown.Title, shown.Status, shown.Retry})
		require.Contains(t, p.Outcome, shown.Outcome, p.Slug)
		require.Contains(t, string(p.Text), fmt.Sprintf("\n    HTTP/1.1 %d %s\n", p.Status, http.StatusText(p.Status)))
		waits := p.Retry == retrySameKey && p.Slug != "internal-error"
		require.Equal(t, waits, strings.Contains(string(p.Text), "\n    Retry-After: "), p.Slug)
	}
}

func TestProblemOf_outcome(t *testing.T) {
	t.Parallel()
	post := httptest.NewRequest(http.MethodPost, "/v1/orders", nil)
	post.Header.Set("Idempotency-Key", "8f14e45f-ceea-467f-a9d4-1f6b7c3e2d10")
	provider := &httpjson.ProviderError{Kind: httpjson.ErrProviderUnavailable, Cause: errors.New("timeout")}
	for _, test := range []struct {
		err           error
		before, after string // the lookup of the key
	}{
		{admission.ErrOverloaded, "unknown", "unknown"},
		{postgres.ErrUnavailable, "unknown", "unknown"},
		{idempotency.ErrNewerVersion, "unknown", "unknown"},
		{&httpjson.InvalidError{Fields: []httpjson.Field{{Pointer: "/email"}}}, "unknown", "none"},
		{&httpjson.Rejection{Slug: "order-exists"}, "unknown", "none"},
		{httpjson.ErrNotFound, "unknown", "none"},
		{provider, "unknown", "unknown"},
		{&httpjson.ProviderError{Kind: httpjson.ErrOutcomeUnknown}, "unknown", "unknown"},
		{idempotency.ErrInProgress, "unknown", "unknown"},
		{idempotency.ErrKeyReused, "unknown", "unknown"},
		{idempotency.ErrFinishedKeyReused, "final", "final"},
		{&idempotency.KeyExpiredError{}, "final", "final"},
		{errors.New("unforeseen"), "unknown", "unknown"},
	} {
		outcome := func(err error) string { return problemOf(err).forRequest(post, err).Outcome }
		require.Equal(t, test.before, outcome(test.err), "%v", test.err)
		require.NotContains(t, problemOf(test.err).Detail, "money", "only outcome states it")
		require.Equal(t, test.after, outcome(&keyedError{error: test.err}), "%v", test.err)
	}
}
