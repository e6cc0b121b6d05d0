package accounts

import (
	"crypto/rand"
	"crypto/sha256"
	"strings"
)

// An API key is keyPrefix and randomLength random characters of randomAlphabet.
// The prefix lets secret scanners recognise a key. The rest has 130 random bits,
// so an unsalted hash is enough.
const (
	keyPrefix      = "ok_"
	randomLength   = 26
	randomAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // of rand.Text
)

// storedPrefixLength is the number of characters of a key that are stored in
// plain text: enough to tell an account's keys apart, and 105 secret bits remain.
const storedPrefixLength = len(keyPrefix) + 5

// keyHash is the SHA-256 of an API key.
type keyHash [sha256.Size]byte

func hashKey(apiKey string) keyHash { return sha256.Sum256([]byte(apiKey)) }

func newKey() string { return keyPrefix + rand.Text()[:randomLength] }

// isWellFormed reports whether apiKey has the form of an API key.
func isWellFormed(apiKey string) bool {
	random, found := strings.CutPrefix(apiKey, keyPrefix)
	return found && len(random) == randomLength && strings.Trim(random, randomAlphabet) == ""
}
