package deploy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// requireTargets checks that the Makefile has each "make TARGET" of a text.
func requireTargets(t *testing.T, text, pattern string) {
	t.Helper()
	makefile := read(t, "Makefile")
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1)
	require.NotEmpty(t, found)
	for _, match := range found {
		require.Contains(t, makefile, "\n"+match[1]+":", "the Makefile has no target %s", match[1])
	}
}

// make workflows lints the workflows, but does not know the targets of the Makefile.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	text := read(t, ".github/workflows/ci.yml")
	requireTargets(t, text, `(?:run: make| {10}-) ([a-z-]+)`)
	for line := range strings.Lines(read(t, ".ci/run")) {
		if target, found := strings.CutPrefix(line, "make "); found {
			require.Contains(t, text, "run: make "+strings.TrimSpace(target), "CI does not run a target of .ci/run")
		}
	}
	var workflow struct {
		Permissions map[string]string
		Jobs        map[string]struct {
			Permissions map[string]string
			Timeout     int `json:"timeout-minutes"`
		}
	}
	for _, match := range regexp.MustCompile(`(?m)^([a-z]+-check):`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		require.Regexp(t, `(run: make| {10}-) `+match[1]+`\n`, text, "no workflow runs make %s", match[1])
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &workflow))
	require.Equal(t, map[string]string{"contents": "read"}, workflow.Permissions)
	for name, job := range workflow.Jobs {
		require.Empty(t, job.Permissions, name)
		require.Positive(t, job.Timeout, name)
	}
}

func TestDependabot(t *testing.T) {
	t.Parallel()
	var config struct {
		Version int `json:"version"`
		Updates []struct {
			Ecosystem string `json:"package-ecosystem"`
			Directory string `json:"directory"`
			Schedule  struct {
				Interval string `json:"interval"`
			} `json:"schedule"`
			Groups map[string]struct {
				Patterns []string `json:"patterns"`
				Types    []string `json:"update-types"`
			} `json:"groups"`
		} `json:"updates"`
	}
	require.NoError(t, yaml.UnmarshalStrict([]byte(read(t, ".github/dependabot.yml")), &config))
	require.Equal(t, 2, config.Version)
	files := map[string]string{
		"gomod":          "go.mod",
		"github-actions": ".github/workflows/ci.yml",
		"docker":         "Dockerfile",
		"docker-compose": "docker-compose.yml",
	}
	seen := map[string]bool{}
	for _, update := range config.Updates {
		require.Contains(t, files, update.Ecosystem)
		require.FileExists(t, filepath.Join(root, update.Directory, files[update.Ecosystem]))
		require.Equal(t, "weekly", update.Schedule.Interval)
		require.NotEmpty(t, update.Groups, update.Ecosystem)
		seen[update.Ecosystem+" "+update.Directory] = true
	}
	expected := map[string]bool{"gomod /": true, "github-actions /": true, "docker /": true, "docker-compose /": true}
	nested, err := filepath.Glob(filepath.Join(root, "*", "go.mod"))
	require.NoError(t, err)
	for _, module := range nested {
		expected["gomod /"+filepath.Base(filepath.Dir(module))] = true
	}
	require.Equal(t, expected, seen)
}

func TestDevcontainer(t *testing.T) {
	t.Parallel()
	decoder := json.NewDecoder(bytes.NewReader([]byte(read(t, ".devcontainer/devcontainer.json"))))
	decoder.DisallowUnknownFields()
	var config struct {
		Name              string
		Image             string
		Features          map[string]struct{}
		ForwardPorts      []int
		PortsAttributes   map[string]struct{ Label string }
		PostCreateCommand string
		Customizations    struct {
			VSCode struct{ Extensions []string }
		}
	}
	require.NoError(t, decoder.Decode(&config))
	require.Equal(t, "golang:"+goVersion(t), config.Image)
	require.Contains(t, config.ForwardPorts, 8080)
	require.Equal(t, "go mod download", config.PostCreateCommand)
}

var consoleLine = regexp.MustCompile(`(?m)^\$ (.*)$`)

// The commands, targets and files that docs/deploy.md names exist.
func TestPage_deploy(t *testing.T) {
	t.Parallel()
	text := read(t, "docs/deploy.md")
	requireTargets(t, text, "(?:^\\$ |`)make ([a-z-]+)")
	for _, match := range regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`).FindAllStringSubmatch(text, -1) {
		_, err := os.Stat(filepath.Join(root, "docs", match[1]))
		require.NoError(t, err)
	}
	ran := 0
	for _, match := range consoleLine.FindAllStringSubmatch(text, -1) {
		command := regexp.MustCompile(`(?:run --rm (?:orders-api|api|api-stripe-test)|/orders) ([a-z].*)$`).FindStringSubmatch(match[1])
		if command == nil {
			continue
		}
		args := strings.Fields(strings.ReplaceAll(command[1], `"My shop"`, "shop"))
		_, err := orders(t, append(args, "-h")...)
		require.NoError(t, err, match[0])
		ran++
	}
	require.Equal(t, 5, ran)
}
