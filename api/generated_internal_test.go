package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write the generated parts of openapi.yaml")

func TestGenerated(t *testing.T) {
	t.Parallel()
	const file = "../openapi.yaml"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	want := string(text)
	for _, part := range []struct{ begin, end, content string }{
		{"    <!-- problems:begin -->\n", "    <!-- problems:end -->\n", problemsTable()},
		{"    # problem schemas: begin\n", "    # problem schemas: end\n", problemSchemas()},
		{"    # problem examples: begin\n", "    # problem examples: end\n", problemExamples(t)},
	} {
		before, rest, found := strings.Cut(want, part.begin)
		require.True(t, found, "%s has no line %s", file, part.begin)
		_, after, found := strings.Cut(rest, part.end)
		require.True(t, found, "%s has no line %s", file, part.end)
		want = before + part.begin + part.content + part.end + after
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
		return
	}
	require.True(t, want == string(text), "%s is out of date: run make generate and look at the difference", file)
}

func problemsTable() string {
	var table strings.Builder
	table.WriteString("    | status | `type` | stored | `retry` | `outcome` |\n    | --- | --- | --- | --- | --- |\n")
	for _, p := range problemTypes() {
		stored := "no"
		if p.Stored != "" {
			stored = "yes"
		}
		retry := "`" + p.Retry + "`"
		if p.Also != "" {
			retry += ", or `" + p.Also + "` " + p.AlsoIf
		}
		fmt.Fprintf(&table, "    | %d | [`%s`](/problems/%s) | %s | %s | `%s` |\n", p.Status, p.Slug, p.Slug, stored, retry, strings.Join(p.Outcomes, "` or `"))
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

func problemSchemas() string {
	var schemas strings.Builder
	schemas.WriteString("    KnownProblemType:\n      description: The problem types of this version.\n      type: string\n      enum:\n")
	for _, p := range problemTypes() {
		fmt.Fprintf(&schemas, "        - /problems/%s\n", p.Slug)
	}
	schemas.WriteString(`
    Problem:
      description: A problem of this version, with the members of its type. The page of the type has its effect and remedy.
      oneOf:
`)
	for _, p := range problemTypes() {
		fmt.Fprintf(&schemas, "        - $ref: '#/components/schemas/%sProblem'\n", schemaName(p.Slug))
	}
	schemas.WriteString("      discriminator:\n        propertyName: type\n        mapping:\n")
	for _, p := range problemTypes() {
		fmt.Fprintf(&schemas, "          /problems/%s: '#/components/schemas/%sProblem'\n", p.Slug, schemaName(p.Slug))
	}
	schemas.WriteString("\n")
	for _, p := range problemTypes() {
		members := p.members
		description := p.Help
		if p.Stored != "" {
			description += " It is stored and replayed, hence without a `request_id`."
		} else {
			members = append([]string{"request_id"}, members...)
		}
		retry := "const: " + p.Retry
		if p.Also != "" {
			retry = fmt.Sprintf("enum: [%s, %s]", p.Also, p.Retry)
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
`, schemaName(p.Slug), folded(description, "        "), strings.Join(required, ", "), p.Slug, p.Status, retry, strings.Join(p.Outcomes, ", "), more.String())
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

func problemExamples(t *testing.T) string {
	t.Helper()
	var examples strings.Builder
	for _, p := range problemTypes() {
		document, _ := p.example()
		fmt.Fprintf(&examples, "    %sProblem:\n      summary: %q\n      value:\n", schemaName(p.Slug), p.Title)
		var value yaml.Node // keeps the order of members
		require.NoError(t, yaml.Unmarshal(document, &value))
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
	slugs := map[string]bool{}
	for _, p := range problemTypes() {
		slugs[p.Slug] = true
	}
	for _, p := range problemTypes() {
		for _, other := range p.See {
			require.True(t, slugs[other] && other != p.Slug, "%s refers to %s", p.Slug, other)
		}
		document, _ := p.example()
		var shown problem
		require.NoError(t, json.Unmarshal(document, &shown))
		require.Equal(t, []any{"/problems/" + p.Slug, p.Title, p.Status, p.Retry}, []any{shown.Type, shown.Title, shown.Status, shown.Retry})
		require.Contains(t, p.Outcomes, shown.Outcome, p.Slug)
		require.Equal(t, p.Stored != "", p.Retry == retryNewKey, "%s: a new key is another payment", p.Slug)
	}
}
