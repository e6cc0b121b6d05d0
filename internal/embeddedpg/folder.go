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
	// appName begins the names of folders in shared places.
	appName = "orders-api"

	// scratchPrefix begins the names of temporary folders, the only ones that the sweep
	// removes.
	scratchPrefix = "postgres-"

	// shm is in memory. Test databases are cloned there 2 times faster than on an idle
	// disk, and 20 times faster than on a busy one.
	shm = "/dev/shm"

	// shmNeed excludes a small /dev/shm. Docker's default is 64 MB; a server with a few
	// dozen test databases needs several hundred.
	shmNeed = 1 << 30

	// keptTimeout is how long a start waits for kept data that is in use: a server
	// that was just killed still writes its data.
	keptTimeout = 2 * time.Second
)

// CacheDir returns the program's folder, or a subfolder, below the user's cache
// directory, and creates it. If the server cannot enter that, as after a start by root,
// the folder is below /var/tmp.
func CacheDir(names ...string) (string, error) {
	as := serverUser()
	dir, err := cacheDir(as)
	for _, name := range names {
		if err == nil {
			dir = filepath.Join(dir, name)
			err = ownFolder(dir, as.folderMode())
		}
	}
	return dir, err
}

func cacheDir(as osUser) (string, error) {
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

// scratchDir returns the parent of temporary folders: in memory if there is enough,
// else in the cache directory.
func scratchDir(cache string, as osUser) (string, error) {
	if freeBytes(shm) > shmNeed {
		dir := filepath.Join(shm, appName+"-"+strconv.Itoa(os.Geteuid()))
		if err := ownFolder(dir, as.folderMode()); err == nil {
			return dir, nil
		}
	}
	dir := filepath.Join(cache, "scratch")
	return dir, ownFolder(dir, as.folderMode())
}

// ownFolder creates the folder, or checks that it belongs to this user: its name is
// predictable, and other users may write to its parent.
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
	return os.Chmod(path, mode) // Mkdir applies the umask
}

type folder struct {
	path string
	kept bool
	// lock must stay referenced: the finalizer of os.File would release the lock, and
	// the next process would remove a folder in use.
	lock *os.File
}

// newFolder creates a temporary folder below parent, and removes those that a crash
// left there.
func newFolder(ctx context.Context, parent string, mode fs.FileMode) (*folder, error) {
	// Between its creation and its lock a folder looks abandoned, so only one process
	// creates and sweeps at a time.
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

// sweep removes the temporary folders below parent that are not locked, if it can.
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

// openFolder creates or opens the folder of kept data, or returns ErrInUse.
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
	ctx, cancel := context.WithTimeoutCause(ctx, keptTimeout, ErrInUse)
	defer cancel()
	lock, err := waitLock(ctx, filepath.Join(path, "lock"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &folder{path: path, kept: true, lock: lock}, nil
}

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

// tryLock creates and locks the file, or returns errLocked.
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

// waitLock waits for the lock of the file. It returns the cause of the context's end if
// that comes first.
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
