package deploy_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"github.com/stretchr/testify/require"
)

const imageVersion = "1.2.3-test"

// stages parses the Dockerfile with BuildKit's parser.
func stages() ([]instructions.Stage, error) {
	file, err := os.Open(filepath.Join(root, "Dockerfile"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	parsed, err := parser.Parse(file)
	if err != nil {
		return nil, err
	}
	list, _, err := instructions.Parse(parsed.AST, nil)
	return list, err
}

// build runs the commands of the Dockerfile's stage "build" in folder, for this system,
// with its environment and the files that .dockerignore includes.
func build() error {
	all, err := stages()
	if err != nil {
		return err
	}
	i, found := instructions.HasStage(all, "build")
	if !found {
		return errors.New("the Dockerfile has no stage build")
	}
	if err := copyContext(filepath.Join(folder, "src")); err != nil {
		return err
	}
	values := map[string]string{"TARGETOS": runtime.GOOS, "TARGETARCH": runtime.GOARCH, "VERSION": imageVersion}
	environment := os.Environ()
	for _, command := range all[i].Commands {
		switch c := command.(type) {
		case *instructions.EnvCommand:
			for _, pair := range c.Env {
				environment = append(environment, pair.Key+"="+os.Expand(pair.Value, func(name string) string { return values[name] }))
			}
		case *instructions.RunCommand:
			line := strings.Join(c.CmdLine, " ")
			if !strings.HasPrefix(line, "go build ") {
				continue // the modules are already downloaded
			}
			shell := exec.Command("sh", "-c", strings.Replace(line, " /out/ ", " ../out/ ", 1))
			shell.Dir, shell.Env = filepath.Join(folder, "src"), environment
			if out, err := shell.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w\n%s", line, err, out)
			}
		}
	}
	return nil
}

// copyContext copies the files of the build context.
func copyContext(to string) error {
	file, err := os.Open(filepath.Join(root, ".dockerignore"))
	if err != nil {
		return err
	}
	defer file.Close()
	patterns, err := ignorefile.ReadAll(file)
	if err != nil {
		return err
	}
	ignored, err := patternmatcher.New(patterns)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		skip, err := ignored.MatchesOrParentMatches(name)
		switch {
		case err != nil:
			return err
		case name == ".":
			return os.MkdirAll(target, 0o755)
		case skip && entry.IsDir():
			return fs.SkipDir
		case skip || !entry.IsDir() && !entry.Type().IsRegular():
			return nil
		case entry.IsDir():
			return os.Mkdir(target, 0o755)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o644)
	})
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	all, err := stages()
	require.NoError(t, err)

	builder := all[0]
	require.Equal(t, "build", builder.Name)
	require.Regexp(t, `^golang:`+regexp.QuoteMeta(goVersion(t))+`(\.|-|$)`, builder.BaseName)
	require.Equal(t, "$BUILDPLATFORM", builder.Platform)

	entrypoints := map[string]string{}
	labels := map[string]string{}
	for _, stage := range all[1:] {
		if i, own := instructions.HasStage(all, stage.BaseName); own {
			require.Equal(t, "base", all[i].Name)
		} else {
			require.Regexp(t, `^[^:@]+:[^:@]+$`, stage.BaseName, "the base image has no version")
			require.NotContains(t, stage.BaseName, ":latest")
		}
		for _, command := range stage.Commands {
			switch c := command.(type) {
			case *instructions.LabelCommand:
				for _, label := range c.Labels {
					labels[stage.Name+" "+label.Key] = label.Value
				}
			case *instructions.UserCommand:
				user, err := strconv.Atoi(strings.Split(c.User, ":")[0])
				require.NoError(t, err, "Kubernetes can only check a numeric user")
				require.NotZero(t, user)
			case *instructions.CopyCommand:
				require.Equal(t, "build", c.From)
				require.Len(t, c.SourcePaths, 1)
				require.FileExists(t, program(t, filepath.Base(c.SourcePaths[0])))
				require.DirExists(t, filepath.Join(root, "cmd", filepath.Base(c.SourcePaths[0])))
				require.Equal(t, "/"+filepath.Base(c.SourcePaths[0]), c.DestPath)
			case *instructions.EntrypointCommand:
				require.False(t, c.PrependShell, "the image has no shell")
				entrypoints[stage.Name] = c.CmdLine[0]
			case *instructions.CmdCommand:
				require.False(t, c.PrependShell, "the image has no shell")
				if stage.Name == "orders" {
					_, err := orders(t, append(c.CmdLine[:len(c.CmdLine):len(c.CmdLine)], "-h")...)
					require.NoError(t, err)
				}
			}
		}
	}
	require.Equal(t, map[string]string{"orders": "/orders", "stripetest": "/stripetest"}, entrypoints)
	for name := range entrypoints {
		require.Equal(t, `"$VERSION"`, labels[name+" org.opencontainers.image.version"])
	}
	require.Equal(t, "orders", all[len(all)-1].Name, "docker build without --target builds the last stage")
}

func TestDockerfile_version(t *testing.T) {
	t.Parallel()
	stdout, err := orders(t, "--version")
	require.NoError(t, err)
	require.Contains(t, stdout, "orders "+imageVersion+", go")
}

// A secret in the folder must not become part of a layer.
func TestDockerignore(t *testing.T) {
	t.Parallel()
	require.NoError(t, built())
	for _, name := range []string{".env", ".git", "docs", "lab", "spec", "Dockerfile", "docker-compose.yml"} {
		require.NoFileExists(t, filepath.Join(folder, "src", name))
		require.NoDirExists(t, filepath.Join(folder, "src", name))
	}
	require.FileExists(t, filepath.Join(folder, "src", "go.mod"))
}
