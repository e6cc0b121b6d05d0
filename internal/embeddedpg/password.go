package embeddedpg

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"path/filepath"
)

const passfileName = "pgpass"

// passfile has the superuser's password, so that a URL can be printed.
func (s *Server) passfile() string { return filepath.Join(s.Dir(), passfileName) }

// newPassword returns a random password as a passfile of libpq and as PostgreSQL stores it.
func newPassword() (passfile, verifier string, err error) {
	password := rand.Text()
	if verifier, err = scramVerifier(password); err != nil {
		return "", "", err
	}
	return "*:*:*:" + superuser + ":" + password + "\n", verifier, nil
}

// scramVerifier returns the verifier of a password (RFC 5802, RFC 7677). A random password
// needs no iterations against guessing, which would cost each connection CPU time.
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
