package embeddedpg

import (
	"bytes"
	"context"
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
	err := os.RemoveAll(s.freshDir())
	if err == nil {
		err = os.Rename(s.dataDir(), s.freshDir())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s *Server) dataDir() string { return filepath.Join(s.Dir(), "data") }

// freshDir is the data directory while it is incomplete.
func (s *Server) freshDir() string { return s.dataDir() + ".new" }

// initialise creates the data directory, or checks that it fits the programs.
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

	// It is renamed when complete, so that an interrupted start leaves no incomplete
	// one.
	fresh := s.freshDir()
	if err := errors.Join(os.RemoveAll(fresh), os.Mkdir(fresh, 0o700), s.chown(fresh)); err != nil {
		return err
	}
	passfile, verifier, err := newPassword()
	if err != nil {
		return err
	}
	// initdb runs as the server's user and gets only the verifier.
	verifierFile := filepath.Join(s.Dir(), "verifier")
	if err := errors.Join(os.WriteFile(s.passfile(), []byte(passfile), 0o600), os.WriteFile(verifierFile, []byte(verifier), 0o600), s.chown(verifierFile)); err != nil {
		return err
	}
	args := []string{
		"-D", fresh, "-U", superuser, "--pwfile", verifierFile, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C",
	}
	if !s.data.kept {
		args = append(args, "--no-sync")
	}
	cmd := s.program().command(s.found.initdb(), args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := runGroup(ctx, cmd); err != nil {
		return fmt.Errorf("initdb as user %d: %w\n%s", s.as.uid, err, lastLines(out.Bytes(), 10))
	}
	return errors.Join(os.Remove(verifierFile), os.Rename(fresh, s.dataDir()))
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
