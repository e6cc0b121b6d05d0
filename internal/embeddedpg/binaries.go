package embeddedpg

import (
	"context"
	"errors"
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

func newFinder(cache string, notice func(string)) finder {
	return finder{
		lookPath: exec.LookPath,
		globs: []string{
			"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
			"/usr/pgsql-*/bin",          // PostgreSQL's own RPMs
			"/opt/homebrew/opt/postgresql@*/bin",
			"/usr/local/opt/postgresql@*/bin",
			"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
			"/Applications/Postgres.app/Contents/Versions/*/bin",
		},
		cache:  cache,
		notice: notice,
	}
}

// find returns the programs on the PATH, else those of the newest package, else the bundle.
func (f finder) find(ctx context.Context) (installation, error) {
	var tried []string
	inspected := func(dir string) installation {
		found, err := inspect(ctx, dir)
		if err != nil {
			tried = append(tried, err.Error())
		}
		return found
	}
	initdb, err := f.lookPath("initdb")
	if err != nil {
		tried = append(tried, err.Error())
	} else if found := inspected(filepath.Dir(initdb)); found.major > 0 {
		return found, nil
	}
	var newest installation
	for _, glob := range f.globs {
		folders, _ := filepath.Glob(glob) // the patterns are valid
		if len(folders) == 0 {
			tried = append(tried, glob+": no such folder")
		}
		for _, dir := range folders {
			if found := inspected(dir); found.major > newest.major {
				newest = found
			}
		}
	}
	if newest.major > 0 {
		return newest, nil
	}
	bundle, err := f.installBundle(ctx)
	if err != nil {
		tried = append(tried, err.Error())
	} else if found := inspected(bundle); found.major > 0 {
		return found, nil
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
		found.major, err = strconv.Atoi(string(match[1]))
	}
	switch {
	case err != nil || found.major == 0:
		return installation{}, errors.Join(fmt.Errorf("%s: unknown version %q", dir, out), err)
	case found.major < oldestMajor:
		return installation{}, fmt.Errorf("%s: is version %d, needed is %d or later", dir, found.major, oldestMajor)
	}
	return found, nil
}
