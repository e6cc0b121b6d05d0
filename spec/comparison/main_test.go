package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const small = `
openapi: 3.1.0
paths:
  /orders:
    parameters:
      - {$ref: '#/components/parameters/Key'}
    post:
      requestBody: {content: {application/json: {schema: {properties: {idempotency_key: {type: string}}}}}}
      responses:
        '201':
          headers: {idempotency-key: {}, Idempotent-Replayed: {}}
          content: {application/json: {example: {id: 1}}}
        '409': {$ref: '#/components/responses/Conflict'}
        default: {description: an error without a body}
    get: {responses: {'422': {}}}
  /items: {post: {responses: {'200': {content: {application/json: {}}}}}}
components:
  parameters: {Key: {in: header, name: Idempotency-Key, required: true}}
  responses:
    Conflict: {headers: {Retry-After: {}}, content: {application/problem+json: {examples: {one: {}}}}}
`

func TestRun(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "small.yaml")
	require.NoError(t, os.WriteFile(file, []byte(small), 0o600))
	var out strings.Builder
	require.NoError(t, run(&out, []string{"small=" + file}))
	require.Equal(t, strings.Join([]string{
		"|  | small |", "| --- | --- |",
		"| POST operations | 2 |",
		"| key header declared / required | 1 / 1 |",
		"| key in the body | 1 |",
		"| 409 / 422 documented | 1 / 0 |",
		"| key repeated in the response | 1 |",
		"| replay header / `Retry-After` | 1 / 1 |",
		"| `application/problem+json` | 1 |",
		"| responses with an example | 2 of 3 |",
		"| error statuses per operation | 1.0 |",
		"",
	}, "\n"), out.String())
}

func TestRun_invalid(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "other.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"info":{}}`), 0o600))
	for want, arguments := range map[string][]string{
		"usage":               nil,
		"give NAME=FILE":      {file},
		"no OpenAPI document": {"x=" + file},
		"no such file":        {"x=" + file + "x"},
	} {
		require.ErrorContains(t, run(&strings.Builder{}, arguments), want)
	}
}

var update = flag.Bool("update", false, "write the column of this API in spec/comparison.md")

// The column of this API in the page is that of openapi.yaml.
func TestGenerated(t *testing.T) {
	t.Parallel()
	const file = "../../spec/comparison.md"
	page, err := os.ReadFile(file)
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, run(&out, []string{"this API=../../openapi.yaml"}))
	text := string(page)
	for _, row := range strings.Split(strings.TrimSpace(out.String()), "\n")[2:] {
		title := row[:strings.Index(row[1:], "|")+2] // "| POST operations |"
		line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(title) + `[^|\n]*\|`)
		require.Len(t, line.FindAllString(text, -1), 1, title)
		if !*update {
			require.Equal(t, row, line.FindString(text), "%s is out of date: run make generate", file)
		}
		text = line.ReplaceAllLiteralString(text, row)
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
}
