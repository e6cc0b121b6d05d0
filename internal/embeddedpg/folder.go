package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	// appName begins the names of our folders in places that others use too.
	appName = "orders-api"

	// scratchPrefix begins the names of throw-away folders. The sweep removes
	// nothing else.
	scratchPrefix = "postgres-"

	// shm is memory. Test databases are cloned there 2 times faster than on an
	// idle disk, and 20 times faster than on a busy one.
	shm = "/dev/shm"

	// shmNeed keeps us off a small /dev/shm: Docker's default is 64 MB, and a
	// server with a few dozen test databases takes several hundred.
	shmNeed = 1 << 30

	// keptPatience is how long a start waits for kept data that is in use: a
	// predecessor that was just killed needs a moment to write everything down.
	keptPatience = 2 * time.Second
)

// CacheDir returns this program's folder below the user's cache directory, made
// if need be: the place for kept data. Where the server could not enter it (it
// runs as nobody when we are root), or there is none, it is a folder below
// /var/tmp instead. With names it returns the subfolder of these names, made too.
func CacheDir(names ...string) (string, error) {
	as := serverAccount()
	dir, err := cacheDir(as)
	for _, name := range names {
		if err == nil {
			dir = filepath.Join(dir, name)
			err = ownFolder(dir, as.folderMode())
		}
	}
	return dir, err
}

func cacheDir(as account) (string, error) {
	base, err := os.UserCacheDir() // fails without HOME
	if err == nil {
		err = os.MkdirAll(base, 0o700)
	}
	if err == nil && as.canReach(base) {
		dir := filepath.Join(base, appName)
		if err := ownFolder(dir, as.folderMode()); err == nil {
			return dir, nil
		}
	}
	dir := filepath.Join("/var/tmp", appName+"-"+strconv.Itoa(os.Geteuid()))
	return dir, ownFolder(dir, as.folderMode())
}

// scratchDir returns the folder that throw-away folders are made in: memory
// where there is room, else the cache directory.
func scratchDir(cache string, as account) (string, error) {
	if freeBytes(shm) > shmNeed {
		dir := filepath.Join(shm, appName+"-"+strconv.Itoa(os.Geteuid()))
		if err := ownFolder(dir, as.folderMode()); err == nil {
			return dir, nil
		}
	}
	dir := filepath.Join(cache, "scratch")
	return dir, ownFolder(dir, as.folderMode())
}

// ownFolder makes the folder, or checks that what is there is one that only we
// can write to: its name is predictable, and the place may be open to all.
func ownFolder(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if owner, _ := ownerOf(info); !info.IsDir() || owner != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of this user: remove it", path)
	}
	return os.Chmod(path, mode) // whatever the umask says
}

// folder is a locked folder: whoever holds its lock uses it.
type folder struct {
	path string
	kept bool
	// lock must stay referenced: os.File closes itself when it is collected, and
	// with it goes the lock, and then the next process removes a live cluster.
	lock *os.File
}

// newFolder makes a throw-away folder below parent, and removes those that a
// crash left there.
func newFolder(ctx context.Context, parent string, mode fs.FileMode) (*folder, error) {
	// Between its creation and its lock a folder looks abandoned, so all that
	// create and sweep take turns.
	turn, err := waitLock(ctx, filepath.Join(parent, "lock"))
	if err != nil {
		return nil, err
	}
	defer turn.Close()

	sweep(parent)
	path, err := os.MkdirTemp(parent, scratchPrefix)
	if err != nil {
		return nil, err
	}
	f := &folder{path: path}
	f.lock, err = tryLock(filepath.Join(path, "lock"))
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		return nil, errors.Join(err, f.release())
	}
	return f, nil
}

// sweep removes the throw-away folders below parent that nobody holds. What
// cannot be removed is left for the next sweep.
func sweep(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), scratchPrefix) {
			continue
		}
		path := filepath.Join(parent, entry.Name())
		lock, err := tryLock(filepath.Join(path, "lock"))
		if err != nil {
			continue
		}
		os.RemoveAll(path)
		lock.Close()
	}
}

// openFolder makes or opens the folder of kept data. It fails with ErrInUse when
// another process holds it.
func openFolder(ctx context.Context, path string, mode fs.FileMode) (*folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), mode); err != nil {
		return nil, err
	}
	if err := ownFolder(path, mode); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, keptPatience, ErrInUse)
	defer cancel()
	lock, err := waitLock(ctx, filepath.Join(path, "lock"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &folder{path: path, kept: true, lock: lock}, nil
}

// release gives the folder up and removes it unless it is kept.
func (f *folder) release() error {
	var err error
	if !f.kept {
		err = os.RemoveAll(f.path)
	}
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	return err
}

// tryLock locks the file, made if need be, or returns errLocked at once.
func tryLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// waitLock locks the file as soon as it is free, and fails with the cause of the
// context's end if that comes first.
func waitLock(ctx context.Context, path string) (*os.File, error) {
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		file, err := tryLock(path)
		if !errors.Is(err, errLocked) {
			return file, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-poll.C:
		}
	}
}
