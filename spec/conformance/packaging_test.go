package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// "go install ADDRESS/spec/conformance@VERSION" rejects a module with replace or exclude
// directives.
func TestPackaging_install(t *testing.T) {
	t.Parallel()
	module, err := os.ReadFile(filepath.Join("..", "go.mod"))
	require.NoError(t, err)
	require.NotRegexp(t, `(?m)^\s*(replace|exclude)\b`, string(module))
	require.Regexp(t, `(?m)^module \S+/spec$`, string(module), "the tag of a version begins with spec/")
}

// The container file copies all that the command is built from.
func TestPackaging_container(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("Containerfile")
	require.NoError(t, err)
	for _, copied := range regexp.MustCompile(`(?m)^COPY ((?:\S+ )+)\S+$`).FindAllStringSubmatch(string(text), -1) {
		for name := range strings.FieldsSeq(copied[1]) {
			if strings.HasPrefix(name, "--from") {
				break
			}
			_, err := os.Stat(filepath.Join("..", name))
			require.NoError(t, err)
		}
	}
}

// The action is valid YAML, its shell steps are scripts, and its flags exist.
func TestPackaging_action(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("action.yml")
	require.NoError(t, err)
	var action struct {
		Name, Description string
		Inputs            map[string]struct {
			Description, Default string
			Required             bool
		}
		Runs struct {
			Using string
			Steps []struct {
				Uses, Shell, Run, If string
				Env, With            map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &action))
	require.Equal(t, "composite", action.Runs.Using)
	scripts := ""
	for _, step := range action.Runs.Steps {
		require.NotEqual(t, step.Uses == "", step.Run == "")
		require.Equal(t, step.Run != "", step.Shell == "bash")
		require.NotContains(t, step.Run, "${{", "an input in a script can add commands")
		scripts += step.Run
		for _, value := range step.Env {
			if input, ok := strings.CutPrefix(value, "${{ inputs."); ok {
				require.Contains(t, action.Inputs, strings.TrimSuffix(input, " }}"))
			}
		}
	}
	_, command, found := strings.Cut(scripts, `"$RUNNER_TEMP/conformance" -profile`)
	require.True(t, found)
	arguments := []string{"-profile", "shop.yaml"}
	for _, report := range regexp.MustCompile(`-report "(\w+)=`).FindAllStringSubmatch(command, -1) {
		arguments = append(arguments, "-report", report[1]+"=file")
	}
	for named := range strings.SplitSeq(action.Inputs["arguments"].Description, " ") {
		if strings.HasPrefix(named, "-") {
			arguments = append(arguments, strings.TrimSuffix(named, ","))
		}
	}
	require.Len(t, arguments, 2+4+3)
	_, err = parse(arguments, io.Discard)
	require.NoError(t, err)
}
