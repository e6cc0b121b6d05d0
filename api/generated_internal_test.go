package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the generated parts of openapi.yaml")

// The parts of openapi.yaml about problems are generated from errors.go and
// problem_docs.go.
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
	require.True(t, want == string(text), "%s is out of date: run make generate and look at the difference", file) // Equal would print both documents
}

func problemsTable() string {
	var table strings.Builder
	table.WriteString("    | status | `type` | stored | `retry` | `outcome` |\n    | --- | --- | --- | --- | --- |\n")
	for _, p := range byStatus(problemTypes()) {
		stored := "no"
		if problemDocs()[p.slug].stored != "" {
			stored = "yes"
		}
		retry := "`" + p.retry + "`"
		if pending := problemDocs()[p.slug].pending; pending != "" {
			retry = "`" + pending + "` or " + retry
		}
		fmt.Fprintf(&table, "    | %d | [`%s`](/problems/%s) | %s | %s | `%s` |\n", p.status, p.slug, p.slug, stored, retry, strings.Join(p.outcomes, "` or `"))
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

func firstSentence(text string) string {
	first, _, _ := strings.Cut(text, ". ")
	return strings.TrimSuffix(first, ".") + "."
}

func problemSchemas() string {
	var schemas strings.Builder
	schemas.WriteString("    KnownProblemType:\n      description: The problem types of this version.\n      type: string\n      enum:\n")
	for _, p := range byStatus(problemTypes()) {
		fmt.Fprintf(&schemas, "        - /problems/%s\n", p.slug)
	}
	schemas.WriteString(`
    Problem:
      description: A problem of this version, with the members of its type.
      oneOf:
`)
	for _, p := range byStatus(problemTypes()) {
		fmt.Fprintf(&schemas, "        - $ref: '#/components/schemas/%sProblem'\n", schemaName(p.slug))
	}
	schemas.WriteString("      discriminator:\n        propertyName: type\n        mapping:\n")
	for _, p := range byStatus(problemTypes()) {
		fmt.Fprintf(&schemas, "          /problems/%s: '#/components/schemas/%sProblem'\n", p.slug, schemaName(p.slug))
	}
	schemas.WriteString("\n")
	for _, p := range byStatus(problemTypes()) {
		e := problemDocs()[p.slug]
		members := e.members
		description := []string{p.help, e.effect, e.next}
		if e.stored != "" {
			description = append(description, "Stored under the key and replayed, hence without a `request_id`.")
		} else {
			members = append([]string{"request_id"}, members...)
		}
		retry := "const: " + p.retry
		if e.pending != "" {
			retry = fmt.Sprintf("enum: [%s, %s]", e.pending, p.retry)
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
`, schemaName(p.slug), folded(description, "        "), strings.Join(required, ", "), p.slug, p.status, retry, strings.Join(p.outcomes, ", "), more.String())
	}
	return schemas.String()
}

func folded(paragraphs []string, indent string) string {
	var text strings.Builder
	for i, paragraph := range paragraphs {
		if i > 0 {
			text.WriteString("\n\n" + indent)
		}
		width := 0
		for j, word := range strings.Fields(paragraph) {
			switch {
			case j == 0:
			case width+len(word) > 78-len(indent):
				text.WriteString("\n" + indent)
				width = 0
			default:
				text.WriteString(" ")
			}
			text.WriteString(word)
			width += len(word) + 1
		}
	}
	return text.String()
}

func problemExamples(t *testing.T) string {
	t.Helper()
	var examples strings.Builder
	for _, p := range byStatus(problemTypes()) {
		document, _ := problemDocs()[p.slug].example()
		decoder := json.NewDecoder(bytes.NewReader(document))
		fmt.Fprintf(&examples, "    %sProblem:\n      summary: %s\n      description: %s\n      value:", schemaName(p.slug), scalar(p.title), scalar(firstSentence(p.help)))
		writeYAML(t, &examples, decoder, "        ", "\n        ")
		examples.WriteString("\n")
	}
	return examples.String()
}

var plainText = regexp.MustCompile(`^[A-Za-z/][A-Za-z /_-]*$`)

func scalar(value any) string {
	if text, ok := value.(string); ok && !plainText.MatchString(text) {
		return "'" + strings.ReplaceAll(text, "'", "''") + "'"
	}
	return fmt.Sprint(value)
}

// writeYAML writes the next JSON value. first precedes the first member: in a list it
// follows the dash.
func writeYAML(t *testing.T, w *strings.Builder, decoder *json.Decoder, indent, first string) {
	t.Helper()
	token, err := decoder.Token()
	require.NoError(t, err)
	switch token {
	case json.Delim('{'):
		for begin := first; decoder.More(); begin = "\n" + indent {
			name, err := decoder.Token()
			require.NoError(t, err)
			fmt.Fprintf(w, "%s%s:", begin, name)
			writeYAML(t, w, decoder, indent+"  ", "\n"+indent+"  ")
		}
		_, err = decoder.Token()
	case json.Delim('['):
		for decoder.More() {
			fmt.Fprintf(w, "\n%s- ", indent)
			writeYAML(t, w, decoder, indent+"  ", "")
		}
		_, err = decoder.Token()
	default:
		w.WriteString(" " + scalar(token))
	}
	require.NoError(t, err)
}

func TestProblemDocs_complete(t *testing.T) {
	t.Parallel()
	all := problemDocs()
	for _, p := range problemTypes() {
		e, documented := all[p.slug]
		require.True(t, documented, "%s is not documented", p.slug)
		require.NotEmpty(t, e.effect, p.slug)
		require.NotEmpty(t, e.next, p.slug)
		require.NotEmpty(t, e.see, p.slug)
		for _, other := range e.see {
			require.Contains(t, all, other, "%s refers to it", p.slug)
			require.NotEqual(t, p.slug, other)
		}
		document, _ := e.example()
		var shown problem
		require.NoError(t, json.Unmarshal(document, &shown))
		require.Equal(t, "/problems/"+p.slug, shown.Type, "the example is of another problem")
		require.Equal(t, []any{p.title, p.status, p.retry}, []any{shown.Title, shown.Status, shown.Retry}, p.slug)
		require.Contains(t, p.outcomes, shown.Outcome, p.slug)
	}
	require.Len(t, all, len(problemTypes()))
}
