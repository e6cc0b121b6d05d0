package main

import (
	"os"
	"path/filepath"
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
  /hooks: {post: {responses: {'422': {}}}}
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
	require.NoError(t, run(&out, "^/hooks$", []string{"small=" + file}))
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
		require.ErrorContains(t, run(&strings.Builder{}, "^$", arguments), want)
	}
}

// The page's column of this API is that of the current contract.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../spec/comparison.md")
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, run(&out, "^/v1/webhooks/stripe$", []string{"this API=../../openapi.yaml"}))
	for row := range strings.Lines(out.String()) {
		if cells := strings.TrimSuffix(row, "\n"); strings.HasPrefix(row, "| ") && !strings.HasPrefix(row, "| ---") && !strings.HasPrefix(row, "|  |") {
			require.Contains(t, string(page), "\n"+cells+" ", "spec/comparison.md is out of date: it lists the command")
		}
	}
}
