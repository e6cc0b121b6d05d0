package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/operations"
	"example.com/orders-api/operations/validation"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/refunds"
)

var update = flag.Bool("update", false, "write the generated parts of openapi.yaml and the examples in problems")

const exampleOrder = "3eeb7e96-e59c-840f-9cb1-a089daba079f"

// exampleErrors are the errors in the examples. The other types are stored responses.
var exampleErrors = map[string]error{
	"idempotency-key-missing":     errKeyMissing,
	"idempotency-key-invalid":     idempotency.ErrInvalidKey,
	"malformed-request":           fmt.Errorf("%w: the body must be a JSON object", idempotency.ErrMalformed),
	"unauthorized":                accounts.ErrUnauthorized,
	"not-found":                   operations.ErrNotFound,
	"method-not-allowed":          errMethodNotAllowed,
	"idempotency-key-in-progress": idempotency.ErrInProgress,
	"too-large":                   fmt.Errorf("%w: at most 64 KiB are allowed here", errTooLarge),
	"unsupported-media-type":      errUnsupportedMedia,
	"idempotency-key-reused":      idempotency.ErrKeyReused,
	"idempotency-key-expired": &keyedError{error: &idempotency.KeyExpiredError{}, created: operations.Links{
		"order": {ID: uuid.MustParse(exampleOrder)},
	}},
	"validation-failed": &keyedError{error: &validation.Error{Fields: []validation.Field{
		{Pointer: "/items/0/quantity", Code: validation.CodeOutOfRange, Detail: "must be from 1 to 10000"},
		{Pointer: "/email", Code: validation.CodeInvalidFormat, Detail: "must be an email address such as ada@example.com"},
	}}},
	"order-not-cancelable":     &keyedError{error: &orders.NotCancelableError{OrderID: uuid.MustParse(exampleOrder)}},
	"order-exists":             &keyedError{error: &orders.OrderExistsError{OrderID: uuid.MustParse(exampleOrder)}},
	"order-not-refundable":     &keyedError{error: &refunds.NotRefundableError{Status: orders.StatusRefunded}},
	"refund-exceeds-remaining": &keyedError{error: &refunds.ExceedsRemainingError{Remaining: 2500}},
	"rate-limited":             admission.ErrRateLimited,
	"internal-error":           errors.New("an unexpected error"),
	"payment-outcome-unknown":  &operations.ProviderError{Kind: operations.ErrOutcomeUnknown},
	"temporarily-unavailable":  postgres.ErrUnavailable,
}

// documentedType adds what only the documents need.
type documentedType struct {
	problemType `yaml:"-"`

	OrIf    string `yaml:"or_if"`
	Stored  string // when, unless Retry decides it
	Members string // extensions: "name", "name?" if optional, "name:Schema" if its schema has another name
	example []byte // JSON
}

var exampleDocument = regexp.MustCompile(`(?s)\n    \{\n.*\n    \}\n`)

func documentedTypes(t *testing.T) (documented []documentedType) {
	t.Helper()
	for _, p := range problemTypes() {
		d := documentedType{problemType: p}
		content, err := problemFiles.ReadFile("problems/" + p.Slug + ".md")
		require.NoError(t, err)
		header, _, _ := bytes.Cut(bytes.TrimPrefix(content, []byte("---\n")), []byte("---\n"))
		require.NoError(t, yaml.Unmarshal(header, &d), p.Slug)
		d.example = exampleDocument.Find(p.Text)
		require.NotNil(t, d.example, p.Slug)
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
	if !strings.Contains("idempotency-key-missing unauthorized not-found method-not-allowed", slug) {
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
	want := string(text)
	for _, part := range []struct{ begin, end, content string }{
		{"    <!-- problems:begin -->\n", "    <!-- problems:end -->\n", problemsTable(types)},
		{"    # problem schemas: begin\n", "    # problem schemas: end\n", problemSchemas(types)},
		{"    # problem examples: begin\n", "    # problem examples: end\n", problemExamples(t, types)},
	} {
		before, rest, found := strings.Cut(want, part.begin)
		require.True(t, found, "%s has no line %s", file, part.begin)
		_, after, found := strings.Cut(rest, part.end)
		require.True(t, found, "%s has no line %s", file, part.end)
		want = before + part.begin + part.content + part.end + after
	}
	requireGenerated(t, file, string(text), want)
}

func requireGenerated(t *testing.T, file, text, want string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
		return
	}
	require.True(t, want == text, "%s is out of date: run make generate and look at the difference", file)
}

func problemsTable(types []documentedType) string {
	var table strings.Builder
	table.WriteString("    | status | `type` | stored | `retry` | `outcome` |\n    | --- | --- | --- | --- | --- |\n")
	for _, p := range types {
		stored := "no"
		if p.Retry == "new-key" {
			stored = "yes"
		}
		stored = cmp.Or(p.Stored, stored)
		retry := "`" + p.Retry + "`"
		if p.Or != "" {
			retry += ", or `" + p.Or + "` " + p.OrIf
		}
		fmt.Fprintf(&table, "    | %d | [`%s`](/problems/%s) | %s | %s | `%s` |\n", p.Status, p.Slug, p.Slug, stored, retry, strings.Join(p.Outcome, "` or `"))
	}
	return table.String()
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

func problemSchemas(types []documentedType) string {
	var schemas strings.Builder
	schemas.WriteString("    KnownProblemType:\n      description: The problem types of this version.\n      type: string\n      enum:\n")
	for _, p := range types {
		fmt.Fprintf(&schemas, "        - /problems/%s\n", p.Slug)
	}
	schemas.WriteString(`
    Problem:
      description: A problem of this version, with the members of its type. The page of the type has its effect and remedy.
      oneOf:
`)
	for _, p := range types {
		fmt.Fprintf(&schemas, "        - $ref: '#/components/schemas/%sProblem'\n", schemaName(p.Slug))
	}
	schemas.WriteString("      discriminator:\n        propertyName: type\n        mapping:\n")
	for _, p := range types {
		fmt.Fprintf(&schemas, "          /problems/%s: '#/components/schemas/%sProblem'\n", p.Slug, schemaName(p.Slug))
	}
	schemas.WriteString("\n")
	for _, p := range types {
		members := strings.Fields(p.Members)
		description, _, _ := strings.Cut(string(p.Text), "\n\n")
		switch {
		case p.Retry == "new-key":
			description += " It is stored and replayed, hence without a `request_id`."
		case p.Stored != "":
			members = append([]string{"request_id?"}, members...)
		default:
			members = append([]string{"request_id"}, members...)
		}
		retry := "const: " + p.Retry
		if p.Or != "" {
			retry = fmt.Sprintf("enum: [%s, %s]", p.Or, p.Retry)
		}
		required := []string{"type", "title", "status", "detail", "retry", "outcome"}
		var more strings.Builder
		for _, member := range members {
			member, schema, _ := strings.Cut(member, ":")
			name, optional := strings.CutSuffix(member, "?")
			if !optional {
				required = append(required, name)
			}
			fmt.Fprintf(&more, "        %s: { $ref: '#/components/schemas/%s' }\n", name, cmp.Or(schema, camel(strings.Split(name, "_"))))
		}
		fmt.Fprintf(&schemas, `    %sProblem:
      description: |
        %s
      type: object
      required: [%s]
      properties:
        type: { type: string, const: /problems/%s }
        title: { $ref: '#/components/schemas/ProblemTitle' }
        status: { type: integer, format: int32, const: %d }
        detail: { $ref: '#/components/schemas/ProblemDetail' }
        retry: { type: string, %s }
        outcome: { type: string, maxLength: 64, x-extensible-enum: [%s] }
%s
`, schemaName(p.Slug), folded(description, "        "), strings.Join(required, ", "), p.Slug, p.Status, retry, strings.Join(p.Outcome, ", "), more.String())
	}
	return schemas.String()
}

func folded(text, indent string) string {
	var lines strings.Builder
	width := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case width+len(word) > 78-len(indent):
			lines.WriteString("\n" + indent)
			width = 0
		default:
			lines.WriteString(" ")
		}
		lines.WriteString(word)
		width += len(word) + 1
	}
	return lines.String()
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

func TestProblemTypes_complete(t *testing.T) {
	t.Parallel()
	for slug := range exampleErrors {
		require.NotNil(t, problemTypeOf(slug), slug)
	}
	for _, p := range documentedTypes(t) {
		stored := p.Retry == "new-key"
		require.Equal(t, exampleErrors[p.Slug] == nil, stored, "%s: only a stored response ends a key", p.Slug)
		var shown problem
		require.NoError(t, json.Unmarshal(p.example, &shown))
		require.Equal(t, []any{"/problems/" + p.Slug, p.Title, p.Status, p.Retry}, []any{shown.Type, shown.Title, shown.Status, shown.Retry})
		require.Contains(t, p.Outcome, shown.Outcome, p.Slug)
		require.Contains(t, string(p.Text), fmt.Sprintf("\n    HTTP/1.1 %d %s\n", p.Status, http.StatusText(p.Status)))
		waits := p.Retry == retrySameKey && p.Slug != "internal-error"
		require.Equal(t, waits, strings.Contains(string(p.Text), "\n    Retry-After: "), p.Slug)
	}
}
