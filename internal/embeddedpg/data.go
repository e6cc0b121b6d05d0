package embeddedpg

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	dataName  = "data"
	freshName = "data.new"

	// passfileName is a file with the password, which libpq reads, so that a printed URL does not show it.
	passfileName = "pgpass"
)

func (s *Server) dataDir() string { return filepath.Join(s.dir, dataName) }

func (s *Server) openData(ctx context.Context, cache string) error {
	if s.kept() {
		err := s.openKept(ctx)
		if err == nil && s.options.Reset {
			err = s.reset()
		}
		return err
	}
	parent, err := scratchDir(cache)
	if err != nil {
		return err
	}
	return s.openScratch(ctx, parent)
}

// reset renames the data directory, and the next initdb removes it. An interrupted removal under the old
// name would leave a damaged data directory.
func (s *Server) reset() error {
	fresh := filepath.Join(s.dir, freshName)
	err := os.RemoveAll(fresh)
	if err == nil {
		err = os.Rename(s.dataDir(), fresh)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s *Server) initialise(ctx context.Context) error {
	version, err := os.ReadFile(filepath.Join(s.dataDir(), "PG_VERSION"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s.initdb(ctx)
	case err != nil:
		return err
	}
	if major := strings.TrimSpace(string(version)); major != strconv.Itoa(s.found.major) {
		return fmt.Errorf("the data in %s is of PostgreSQL %s, the programs in %s are of version %d: set PG_BIN to programs of version %s, or delete that folder",
			s.dir, major, s.found.bin, s.found.major, major)
	}
	return nil
}

// initdb creates the data directory. The program initdb inherits the folder's lock, so that no other
// process uses the folder while initdb still runs after this process was killed.
func (s *Server) initdb(ctx context.Context) error {
	fresh := filepath.Join(s.dir, freshName)
	password := rand.Text()
	passwordFile := filepath.Join(s.dir, "password")
	if err := errors.Join(
		os.RemoveAll(fresh),
		os.Mkdir(fresh, 0o700),
		os.WriteFile(filepath.Join(s.dir, passfileName), []byte("*:*:*:"+superuser+":"+password+"\n"), 0o600),
		os.WriteFile(passwordFile, []byte(password), 0o600),
	); err != nil {
		return err
	}
	if asNobody() {
		if err := errors.Join(os.Chown(fresh, nobody, nobody), os.Chown(passwordFile, nobody, nobody)); err != nil {
			return err
		}
	}
	// A random password needs no iterations, which cost each connection CPU time.
	method := []string{"-A", "scram-sha-256", "-c", "scram_iterations=1"}
	if s.found.major < 16 { // which has no such setting
		method = []string{"-A", "md5"}
	}
	if !s.kept() {
		method = append(method, "--no-sync")
	}
	args := append(method, "-D", fresh, "-U", superuser, "--pwfile", passwordFile, "-E", "UTF8", "--locale=C")
	cmd := s.command(ctx, s.found.initdb(), args...)
	cmd.ExtraFiles = []*os.File{s.lock}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", errors.Join(err, context.Cause(ctx)), lastLines(out, 10))
	}
	return errors.Join(os.Remove(passwordFile), os.Rename(fresh, s.dataDir()))
}
