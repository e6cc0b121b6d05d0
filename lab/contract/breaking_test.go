// Package contract_test compares openapi.yaml with the released contract and rates it. It
// is in this module because its dependencies take long to build: make contract.
package contract_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	current   = "../../openapi.yaml"
	changelog = "../../CHANGELOG.md"
	released  = "testdata/openapi.released.yaml"
)

// change is a difference between two contracts that can break a client.
type change struct {
	ID        string // oasdiff's id of the rule
	Text      string
	Operation string // its method
	Path      string
}

func (c change) String() string {
	return fmt.Sprintf("`%s %s`, `%s`: %s", c.Operation, c.Path, c.ID, c.Text)
}

// breaking runs oasdiff in the version of go.mod. The first call on a machine builds it.
func breaking(t *testing.T, base, revision string) []change {
	t.Helper()
	path, err := exec.CommandContext(t.Context(), "go", "tool", "-n", "oasdiff").Output()
	require.NoError(t, withStderr(err))
	report, err := exec.CommandContext(t.Context(), strings.TrimSpace(string(path)), "breaking", base, revision, "--format", "json").Output()
	require.NoError(t, withStderr(err))
	var all []change
	require.NoError(t, json.Unmarshal(report, &all))
	return slices.DeleteFunc(all, func(c change) bool { // the API sends the request of a webhook, so a member more breaks no shop
		return strings.HasPrefix(c.Path, "webhook:") && c.ID == "new-required-request-property"
	})
}

// withStderr adds the standard error of a command.
func withStderr(err error) error {
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	return err
}

// unannounced returns the changes without a line in the changelog.
func unannounced(changes []change, changelog string) []string {
	_, section, _ := strings.Cut(changelog, "\n## [Unreleased]\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, section, _ = strings.Cut(section, "\n### Breaking\n")
	section, _, _ = strings.Cut(section, "\n### ")
	var missing []string
	for _, c := range changes {
		announced := false
		for line := range strings.Lines(section) {
			named := strings.Contains(line, "`"+c.Operation+" "+c.Path+"`") || strings.Contains(line, "`every operation`") // of a problem
			announced = announced || named && strings.Contains(line, "`"+c.ID+"`")
		}
		if !announced {
			missing = append(missing, c.String())
		}
	}
	return missing
}

func TestBreaking_released(t *testing.T) {
	t.Parallel()
	announced, err := os.ReadFile(changelog)
	require.NoError(t, err)
	require.Empty(t, unannounced(breaking(t, released, current), string(announced)),
		"these changes can break clients of the released contract: revert them, or announce them in CHANGELOG.md")
}

func TestBreaking_announced(t *testing.T) {
	t.Parallel()
	spec, err := os.ReadFile(current)
	require.NoError(t, err)
	const before = "# Changelog\n\n## [Unreleased]\n\n### Breaking\n\n"
	for name, test := range map[string]struct {
		old, edited string
		line        string // that announces the change; empty: the change is compatible
	}{
		"path removed": {
			"\n  /v1/orders/{id}/refunds/{refund_id}:\n", "\n  /v1/orders/{id}/refund/{refund_id}:\n",
			"- `GET /v1/orders/{id}/refunds/{refund_id}`, `api-path-removed-without-deprecation`: use the new path.",
		},
		"request member required": {
			"required: [email, currency, payment_method, items]\n", "required: [email, currency, payment_method, items, metadata]\n",
			"- `POST /v1/orders`, `request-property-became-required`: send it.",
		},
		"request header required": {
			" numbers are never sent to this API.\n      parameters:\n",
			" numbers are never sent to this API.\n      parameters:\n        - { name: Shop, in: header, required: true, schema: { type: string } }\n",
			"- `POST /v1/orders`, `new-required-request-parameter`: send it.",
		},
		"status removed": {
			"        '200':\n          description: A page of orders", "        '206':\n          description: A page of orders",
			"- `GET /v1/orders`, `response-success-status-removed`: expect 206.",
		},
		"response member with another type": {
			"          description: True if older orders follow.\n          type: boolean\n", "          description: True if older orders follow.\n          type: string\n",
			"- `GET /v1/orders`, `response-property-type-changed`: compare with a string.",
		},
		"description": {"Newest first.", "The newest come first.", ""},
		"response member added": {
			"        has_more:\n          description: True if", "        total: { type: integer }\n        has_more:\n          description: True if", "",
		},
		"order status added": {"refunded]\n", "refunded, lost]\n", ""},
		"problem type added": {
			"            keyMissing: {",
			"            later:\n              value: { type: /problems/later, title: Later, status: 400, detail: Later., retry: never, outcome: none }\n            keyMissing: {", "",
		},
		"value of an event's type added": {"dispute.updated]\n", "dispute.updated, dispute.closed]\n", ""},
		"member of an event added": {
			"        account_id:\n          description: The account", "        more: { type: string }\n        account_id:\n          description: The account", "",
		},
		"event type added": {"\nwebhooks:\n", "\nwebhooks:\n  order.later: { post: { operationId: orderLater, responses: { '204': { description: Received. } } } }\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			edited := strings.Replace(string(spec), test.old, test.edited, 1)
			require.NotEqual(t, string(spec), edited, "openapi.yaml does not contain the text that this test replaces")
			revision := filepath.Join(t.TempDir(), "openapi.yaml")
			require.NoError(t, os.WriteFile(revision, []byte(edited), 0o600))

			changes := breaking(t, current, revision)
			if test.line == "" {
				require.Empty(t, changes)
				return
			}
			require.NotEmpty(t, changes)
			require.NotEmpty(t, unannounced(changes, before))
			require.NotEmpty(t, unannounced(changes, before+"\n## [1.0.0]\n\n### Breaking\n\n"+test.line), "an announcement in an earlier release must not count")
			require.Empty(t, unannounced(changes, before+test.line+"\n"))
		})
	}
}

func TestBreaking_retryValue(t *testing.T) {
	t.Parallel()
	spec, err := os.ReadFile(current)
	require.NoError(t, err)
	const values = "          enum: [same-key, corrected, new-key, never"
	require.Contains(t, string(spec), values)
	revision := filepath.Join(t.TempDir(), "openapi.yaml")
	require.NoError(t, os.WriteFile(revision, []byte(strings.Replace(string(spec), values, values+", later", 1)), 0o600))
	changes := breaking(t, current, revision)
	require.NotEmpty(t, changes)
	for _, c := range changes {
		require.Equal(t, "response-property-enum-value-added", c.ID)
	}
}

// A number names one document. To change a released one, give it the next number.
func TestReleased_unchanged(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(current)
	require.NoError(t, err)
	spec, err := os.ReadFile(released)
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^  version: .*$`)
	same := version.FindString(string(text)) == version.FindString(string(spec))
	require.Equal(t, same, string(text) == string(spec), "openapi.yaml has the number of the released document, and another text")
}

func TestReleased_changelog(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(changelog)
	require.NoError(t, err)
	releases := regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$`).FindStringSubmatch(string(text))
	require.NotNil(t, releases, "CHANGELOG.md has no release")
	spec, err := os.ReadFile(released)
	require.NoError(t, err)
	require.Contains(t, string(spec), "\n  version: "+releases[1]+"\n")
}
