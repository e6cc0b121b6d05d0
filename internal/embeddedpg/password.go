package embeddedpg

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// passfile returns the path of the file with the superuser's password, in the format
// of libpq. Only this process's user can read it. A URL that names it works like one
// with the password, and can be printed and used as an argument.
func (s *Server) passfile() string { return filepath.Join(s.Dir(), "pgpass") }

// newPassword returns the content of a passfile with a random password, and the
// password's SCRAM verifier, which is what PostgreSQL stores.
func newPassword() (passfile, verifier string, err error) {
	password := rand.Text()
	if verifier, err = scramVerifier(password); err != nil {
		return "", "", err
	}
	return "*:*:*:" + superuser + ":" + password + "\n", verifier, nil
}

// scramVerifier returns the verifier of a password (RFC 5802, RFC 7677). Iterations slow
// down guessing, and a random password of 128 bits cannot be guessed. One iteration is
// enough, and saves client and server the CPU of 4096 in each connection.
func scramVerifier(password string) (string, error) {
	const iterations = 1
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		return "", err
	}
	sign := func(text string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	storedKey := sha256.Sum256(sign("Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, encode(salt), encode(storedKey[:]), encode(sign("Server Key"))), nil
}

// writePassfile replaces the passfile in one step.
func (s *Server) writePassfile(content string) error {
	fresh := s.passfile() + ".new"
	if err := os.WriteFile(fresh, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, s.passfile())
}

// requirePassword gives a password to kept data of an earlier version of this package,
// whose server required none. It runs in PostgreSQL's single-user mode, which accepts
// no connections. The passfile is written last: until it exists, each start repeats
// this.
func (s *Server) requirePassword(ctx context.Context) error {
	passfile, verifier, err := newPassword()
	if err != nil {
		return err
	}
	rules := strings.ReplaceAll(filepath.Join(s.dataDir(), "pg_hba.conf"), "'", "''")
	cmd := s.program().command(s.found.postgres(), "--single", "-D", s.dataDir(), "-c", "exit_on_error=on", "postgres")
	cmd.Stdin = strings.NewReader("ALTER ROLE " + superuser + " PASSWORD '" + verifier + "'\n" +
		"COPY (VALUES ('local all all scram-sha-256'), ('host all all all scram-sha-256'), ('host replication all all scram-sha-256')) TO '" + rules + "'\n")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := runGroup(ctx, cmd); err != nil {
		return fmt.Errorf("%s is from a version whose server required no password, and to set one failed: %w\n%s\nRemove that folder to begin anew",
			s.Dir(), err, lastLines(out.Bytes(), 10))
	}
	return s.writePassfile(passfile)
}
