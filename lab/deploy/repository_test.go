package deploy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// actionlint checks the workflows, but it does not know the targets of the Makefiles.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	text := ""
	for _, name := range []string{"ci.yml", "lab.yml"} {
		content := read(t, ".github/workflows/"+name)
		text += content
		var workflow struct {
			Permissions map[string]string
			Jobs        map[string]struct {
				Permissions map[string]string
				Timeout     int `json:"timeout-minutes"`
			}
		}
		require.NoError(t, yaml.Unmarshal([]byte(content), &workflow))
		require.Equal(t, map[string]string{"contents": "read"}, workflow.Permissions)
		for job, settings := range workflow.Jobs {
			require.Empty(t, settings.Permissions, job)
			require.Positive(t, settings.Timeout, job)
		}
	}

	run := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)(?:run: make|^ {10}-)(?: -C)?(?: (lab|spec))? ([a-z][a-z-]*)`).FindAllStringSubmatch(text, -1) {
		folder, target := match[1], match[2]
		run[strings.TrimSpace(folder+" "+target)] = true
		require.Contains(t, read(t, filepath.Join(folder, "Makefile")), "\n"+target+":", "%s/Makefile has no target %s", folder, target)
	}
	run["lab check"] = run["lab quick"] // a part of it
	for _, match := range regexp.MustCompile(`make (?:-C )?((?:lab |spec )?[a-z][a-z-]*)`).FindAllStringSubmatch(read(t, ".ci/run"), -1) {
		require.True(t, run[match[1]], "no workflow runs %s of .ci/run", match[1])
	}
	for _, folder := range []string{"lab", "spec"} {
		for _, match := range regexp.MustCompile(`(?m)^([a-z]+-check):`).FindAllStringSubmatch(read(t, folder+"/Makefile"), -1) {
			if match[1] != "clients-check" { // a part of quick
				require.Contains(t, run, folder+" "+match[1], "no workflow runs the target")
			}
		}
	}
}

func TestDependabot(t *testing.T) {
	t.Parallel()
	var config struct {
		Version int `json:"version"`
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directory   string   `json:"directory"`
			Directories []string `json:"directories"`
			Schedule    struct {
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
		require.Equal(t, "weekly", update.Schedule.Interval)
		require.NotEmpty(t, update.Groups, update.Ecosystem)
		for _, folder := range append(update.Directories, update.Directory) {
			if folder != "" {
				require.FileExists(t, filepath.Join(root, folder, files[update.Ecosystem]))
				seen[update.Ecosystem+" "+folder] = true
			}
		}
	}
	expected := map[string]bool{"gomod /": true, "github-actions /": true, "docker /": true, "docker-compose /": true}
	nested, err := filepath.Glob(filepath.Join(root, "*", "go.mod"))
	require.NoError(t, err)
	for _, module := range nested {
		expected["gomod /"+filepath.Base(filepath.Dir(module))+"/"] = true
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
	for _, match := range regexp.MustCompile("(?m)(?:^\\$ |`)make ([a-z-]+)").FindAllStringSubmatch(text, -1) {
		require.Contains(t, read(t, "Makefile"), "\n"+match[1]+":")
	}
	for _, match := range regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`).FindAllStringSubmatch(text, -1) {
		_, err := os.Stat(filepath.Join(root, "docs", match[1]))
		require.NoError(t, err)
	}
	ran := 0
	for _, match := range consoleLine.FindAllStringSubmatch(text, -1) {
		command := regexp.MustCompile(`(?:run --rm (?:orders-api|api)|/orders) ([a-z].*)$`).FindStringSubmatch(match[1])
		if command == nil {
			continue
		}
		args := strings.Fields(strings.ReplaceAll(command[1], `"My shop"`, "shop"))
		_, err := orders(t, append(args, "-h")...)
		require.NoError(t, err, match[0])
		ran++
	}
	require.Equal(t, 3, ran)
}

// The targets that run the program read .env. A variable of the environment wins.
func TestMakefile_env(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"run", "demo"} {
		folder := t.TempDir()
		write := func(name, content string, mode os.FileMode) {
			require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), mode))
		}
		write("Makefile", read(t, "Makefile"), 0o600)
		write(".env", "STRIPE_SECRET_KEY=\nRECEIPTS_FROM='Tea & more <tea@example.com>'\n", 0o600)
		require.NoError(t, os.Mkdir(filepath.Join(folder, "bin"), 0o700))
		write("bin/playground", "#!/bin/sh\necho \"$STRIPE_SECRET_KEY, $RECEIPTS_FROM, $QUOTED\"\n", 0o700)
		cmd := exec.CommandContext(t.Context(), "make", "--silent", target, "GO=true")
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "STRIPE_SECRET_KEY=sk_test_1", "QUOTED=it's $HOME")
		output, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", output)
		require.Contains(t, string(output), "sk_test_1, Tea & more <tea@example.com>, it's $HOME\n", target)
	}
}
