// Package contract_test compares openapi.yaml with the released one and rates it. It is
// here and not beside the API because what it needs takes long to build: make contract.
package contract_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	current   = "../../openapi.yaml"
	changelog = "../../CHANGELOG.md"
	released  = "testdata/openapi.released.yaml"
)

// change is a difference between two contracts that could break a client.
type change struct {
	ID        string // oasdiff's name of the kind of change
	Text      string
	Operation string // its method
	Path      string
}

func (c change) String() string {
	return fmt.Sprintf("`%s %s`, `%s`: %s", c.Operation, c.Path, c.ID, c.Text)
}

// breaking asks oasdiff, whose version go.mod pins. The first call on a machine
// builds it.
func breaking(t *testing.T, base, revision string) []change {
	t.Helper()
	path, err := exec.CommandContext(t.Context(), "go", "tool", "-n", "oasdiff").Output()
	require.NoError(t, explain(err))
	report, err := exec.CommandContext(t.Context(), strings.TrimSpace(string(path)), "breaking", base, revision, "--format", "json").Output()
	require.NoError(t, explain(err))
	var all []change
	require.NoError(t, json.Unmarshal(report, &all))
	return all
}

// explain adds what a command said.
func explain(err error) error {
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	return err
}

// unannounced returns the changes without a line in the changelog, see there.
func unannounced(changes []change, changelog string) []string {
	_, section, _ := strings.Cut(changelog, "\n## [Unreleased]\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, section, _ = strings.Cut(section, "\n### Breaking\n")
	section, _, _ = strings.Cut(section, "\n### ")
	var missing []string
	for _, c := range changes {
		announced := false
		for line := range strings.Lines(section) {
			announced = announced || strings.Contains(line, "`"+c.Operation+" "+c.Path+"`") && strings.Contains(line, "`"+c.ID+"`")
		}
		if !announced {
			missing = append(missing, c.String())
		}
	}
	return missing
}

func TestNothingBreaksUnannounced(t *testing.T) {
	t.Parallel()
	announced, err := os.ReadFile(changelog)
	require.NoError(t, err)
	require.Empty(t, unannounced(breaking(t, released, current), string(announced)),
		"these break clients of the released contract; avoid them, or announce them in CHANGELOG.md")
}

func TestABreakingChangeIsNoticedUntilItIsAnnounced(t *testing.T) {
	t.Parallel()
	spec, err := os.ReadFile(current)
	require.NoError(t, err)
	const before = "# Changelog\n\n## [Unreleased]\n\n### Breaking\n\n"
	for name, test := range map[string]struct {
		old, edited string
		line        string // that announces it; none: nothing breaks
	}{
		"an address is gone": {
			"\n  /readyz:\n", "\n  /ready:\n",
			"- `GET /readyz`, `api-path-removed-without-deprecation`: ask /ready.",
		},
		"a member of the request is needed": {
			"required: [email, currency, payment_method, items]\n", "required: [email, currency, payment_method, items, metadata]\n",
			"- `POST /v1/orders`, `request-property-became-required`: send it.",
		},
		"a header of the request is needed": {
			"      name: Idempotency-Key\n", "      name: Idempotency-Name\n",
			"- `POST /v1/orders`, `new-required-request-parameter`, `request-parameter-removed`: rename it.\n" +
				"- `POST /v1/orders/{id}/refunds`, `new-required-request-parameter`, `request-parameter-removed`: likewise.",
		},
		"a status is gone": {
			"        '200':\n          description: A page of orders", "        '206':\n          description: A page of orders",
			"- `GET /v1/orders`, `response-success-status-removed`: expect 206.",
		},
		"an answer has another type": {
			"          description: True if older orders follow.\n          type: boolean\n", "          description: True if older orders follow.\n          type: string\n",
			"- `GET /v1/orders`, `response-property-type-changed`: compare with a text.",
		},
		"a description": {"Newest first.", "The newest come first.", ""},
		"a member more in an answer": {
			"        has_more:\n          description: True if", "        total: { type: integer }\n        has_more:\n          description: True if", "",
		},
		"a status more of an order": {"refunded]\n", "refunded, lost]\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			edited := strings.Replace(string(spec), test.old, test.edited, 1)
			require.NotEqual(t, string(spec), edited, "the contract has no such place any more")
			revision := filepath.Join(t.TempDir(), "openapi.yaml")
			require.NoError(t, os.WriteFile(revision, []byte(edited), 0o600))

			changes := breaking(t, current, revision)
			if test.line == "" {
				require.Empty(t, changes)
				return
			}
			require.NotEmpty(t, changes)
			require.NotEmpty(t, unannounced(changes, before))
			require.NotEmpty(t, unannounced(changes, before+"\n## [1.0.0]\n\n### Breaking\n\n"+test.line), "that was an earlier release")
			require.Empty(t, unannounced(changes, before+test.line+"\n"))
		})
	}
}

// Clients handle four values of retry. A fifth one breaks each operation.
func TestAFifthValueOfRetryBreaks(t *testing.T) {
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

// The released contract is that of the last release in the changelog.
func TestTheChangelogNamesTheRelease(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(changelog)
	require.NoError(t, err)
	releases := regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$`).FindStringSubmatch(string(text))
	require.NotNil(t, releases)
	spec, err := os.ReadFile(released)
	require.NoError(t, err)
	require.Contains(t, string(spec), "\n  version: "+releases[1]+"\n")
}
