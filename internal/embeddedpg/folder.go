package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	appName       = "orders-api"
	scratchPrefix = "postgres-" // of temporary folders

	// shm is in memory, where test databases are copied up to 20 times faster than on disk.
	shm     = "/dev/shm"
	shmNeed = 1 << 30

	keptTimeout = 2 * time.Second // lets the server of a killed process write its data
)

// ErrInUse means that another process uses the data folder.
var ErrInUse = errors.New("the data folder is in use by another process")

// CacheDir creates a folder below the user's cache directory or, if the server cannot enter
// that, as after a start by root, below /var/tmp.
func CacheDir(names ...string) (string, error) {
	base, err := os.UserCacheDir() // fails without HOME
	if err == nil {
		err = os.MkdirAll(base, 0o700)
	}
	dir := filepath.Join(base, appName)
	if err != nil || !canReach(base) || ownFolder(dir) != nil {
		dir = fmt.Sprintf("/var/tmp/%s-%d", appName, os.Geteuid())
		err = ownFolder(dir)
	}
	for _, name := range names {
		if err == nil {
			dir = filepath.Join(dir, name)
			err = ownFolder(dir)
		}
	}
	return dir, err
}

// scratchDir is in memory if there is enough space.
func scratchDir(cache string) (string, error) {
	dir := fmt.Sprintf("%s/%s-%d", shm, appName, os.Geteuid())
	var stat syscall.Statfs_t
	if syscall.Statfs(shm, &stat) == nil && stat.Bavail*uint64(stat.Bsize) > shmNeed && ownFolder(dir) == nil {
		return dir, nil
	}
	dir = filepath.Join(cache, "scratch")
	return dir, ownFolder(dir)
}

// ownFolder creates a folder, or checks that it is this user's, because others may write to
// its parent.
func ownFolder(path string) error {
	if err := os.Mkdir(path, folderMode()); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of this user: remove it", path)
	}
	return os.Chmod(path, folderMode()) // Mkdir applies the umask
}

// folderMode returns the mode of our folders. It is private, unless the server runs as another user.
func folderMode() fs.FileMode {
	if asNobody() {
		return 0o711
	}
	return 0o700
}

func (s *Server) openScratch(ctx context.Context, parent string) error {
	// Until it is locked, a new folder looks abandoned.
	turn, err := waitLock(ctx, filepath.Join(parent, "lock"))
	if err != nil {
		return err
	}
	defer turn.Close()

	sweep(parent)
	if s.dir, err = os.MkdirTemp(parent, scratchPrefix); err != nil {
		return err
	}
	if s.lock, err = tryLock(filepath.Join(s.dir, "lock")); err != nil {
		return err
	}
	return os.Chmod(s.dir, folderMode())
}

// sweep removes the temporary folders below parent that no server uses.
func sweep(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, entry := range entries {
		path := filepath.Join(parent, entry.Name())
		if !strings.HasPrefix(entry.Name(), scratchPrefix) {
			continue
		}
		if lock, err := tryLock(filepath.Join(path, "lock")); err == nil {
			os.RemoveAll(path)
			lock.Close()
		}
	}
}

// openKept creates or opens the folder of kept data, or returns ErrInUse.
func (s *Server) openKept(ctx context.Context) error {
	path, err := filepath.Abs(s.options.DataDir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), folderMode()); err != nil {
		return err
	}
	if err := ownFolder(path); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, keptTimeout, ErrInUse)
	defer cancel()
	if s.lock, err = waitLock(ctx, filepath.Join(path, "lock")); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	s.dir = path
	return nil
}

func (s *Server) kept() bool { return s.options.DataDir != "" }

func (s *Server) release() error {
	var err error
	if !s.kept() && s.dir != "" {
		err = os.RemoveAll(s.dir)
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

// tryLock locks the file until the last process closes it, or returns EWOULDBLOCK.
func tryLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func waitLock(ctx context.Context, path string) (*os.File, error) {
	for {
		file, err := tryLock(path)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return file, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
