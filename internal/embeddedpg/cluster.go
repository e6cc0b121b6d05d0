package embeddedpg

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

func (s *Server) openData(ctx context.Context, cache string) error {
	if s.options.DataDir == "" {
		parent, err := scratchDir(cache, s.as)
		if err != nil {
			return err
		}
		s.data, err = newFolder(ctx, parent, s.as.folderMode())
		return err
	}
	var err error
	if s.data, err = openFolder(ctx, s.options.DataDir, s.as.folderMode()); err != nil {
		return err
	}
	if !s.as.canReach(s.Dir()) {
		return fmt.Errorf("%s: the server runs as user %d, which cannot enter this folder: choose one below /var/tmp", s.Dir(), s.as.uid)
	}
	if s.options.Reset {
		return s.reset()
	}
	return nil
}

// reset renames the data directory, because an interrupted removal would leave a
// damaged one. initialise removes it.
func (s *Server) reset() error {
	fresh := filepath.Join(s.Dir(), freshName)
	err := os.RemoveAll(fresh)
	if err == nil {
		err = os.Rename(s.dataDir(), fresh)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

const (
	dataName  = "data"
	freshName = "data.new"
)

func (s *Server) dataDir() string { return filepath.Join(s.Dir(), dataName) }

func (s *Server) initialise(ctx context.Context) error {
	version, err := os.ReadFile(filepath.Join(s.dataDir(), "PG_VERSION"))
	if err == nil {
		if major := strings.TrimSpace(string(version)); major != strconv.Itoa(s.found.major) {
			return fmt.Errorf("the data in %s is of PostgreSQL %s, the programs in %s are of version %d: set PG_BIN to programs of version %s, or delete that folder",
				s.Dir(), major, s.found.bin, s.found.major, major)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	if s.data.kept {
		return s.initdb(ctx, s.Dir(), s.data.lock)
	}
	return s.copyInitialised(ctx)
}

// copyInitialised copies the data directory from a folder that the first server of an
// installation fills: a copy takes a tenth of the CPU time of initdb.
func (s *Server) copyInitialised(ctx context.Context) error {
	info, err := os.Stat(s.found.postgres())
	if err != nil {
		return err
	}
	programs := sha256.Sum256(fmt.Appendf(nil, "%s %s", s.found.bin, info.ModTime()))
	source := filepath.Join(filepath.Dir(s.Dir()), fmt.Sprintf("initdb-%x", programs[:8]))
	if err := ownFolder(source, s.as.folderMode()); err != nil {
		return err
	}
	turn, err := waitLock(ctx, filepath.Join(source, "lock"))
	if err != nil {
		return err
	}
	defer turn.Close()
	data := filepath.Join(source, dataName)
	if _, err := os.Stat(data); errors.Is(err, fs.ErrNotExist) {
		if err := s.initdb(ctx, source, turn); err != nil {
			return err
		}
	}
	return errors.Join(copyFile(s.passfile(), filepath.Join(source, passfileName)), s.copyData(s.dataDir(), data))
}

func (s *Server) copyData(to, from string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		target := to + strings.TrimPrefix(path, from)
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			err = os.Mkdir(target, 0o700)
		default:
			err = copyFile(target, path)
		}
		return errors.Join(err, s.chown(target))
	})
}

func copyFile(to, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600)
}

// initdb holds the lock until the program has ended, even if this process is killed.
func (s *Server) initdb(ctx context.Context, dir string, lock *os.File) error {
	// It is renamed when complete, so that an interrupted start leaves no incomplete
	// one.
	fresh := filepath.Join(dir, freshName)
	if err := errors.Join(os.RemoveAll(fresh), os.Mkdir(fresh, 0o700), s.chown(fresh)); err != nil {
		return err
	}
	passfile, verifier, err := newPassword()
	if err != nil {
		return err
	}
	// initdb runs as the server's user and gets only the verifier.
	verifierFile := filepath.Join(dir, "verifier")
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, passfileName), []byte(passfile), 0o600),
		os.WriteFile(verifierFile, []byte(verifier), 0o600),
		s.chown(verifierFile),
	); err != nil {
		return err
	}
	cmd := s.program().command(s.found.initdb(), "-D", fresh, "-U", superuser, "--pwfile", verifierFile, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.ExtraFiles = []*os.File{lock}
	if err := runGroup(ctx, cmd); err != nil {
		return fmt.Errorf("initdb as user %d: %w\n%s", s.as.uid, err, lastLines(out.Bytes(), 10))
	}
	return errors.Join(os.Remove(verifierFile), os.Rename(fresh, filepath.Join(dir, dataName)))
}

func (s *Server) chown(path string) error {
	if !s.as.switched {
		return nil
	}
	return os.Lchown(path, s.as.uid, s.as.gid)
}

// runGroup runs a command and kills its process group when ctx ends.
func runGroup(ctx context.Context, cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	release := context.AfterFunc(ctx, func() { _ = killGroup(cmd.Process.Pid) })
	err := cmd.Wait()
	if !release() {
		return context.Cause(ctx)
	}
	return err
}
