package events

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Secrets sign the events: one secret, or two while the shop changes from one to the other.
type Secrets [][]byte

// ErrInvalidSecrets means that a text has no secrets as Standard Webhooks defines them.
var ErrInvalidSecrets = errors.New("is not whsec_ and the base64 of 24 to 64 bytes, or two of these with a comma between (its value is not shown); " +
	`generate one with echo "whsec_$(openssl rand -base64 32)"`)

// ParseSecrets returns the secrets of a text, or ErrInvalidSecrets.
func ParseSecrets(text string) (Secrets, error) {
	var secrets Secrets
	for secret := range strings.SplitSeq(text, ",") {
		encoded, prefixed := strings.CutPrefix(strings.TrimSpace(secret), "whsec_")
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || !prefixed || len(key) < 24 || len(key) > 64 || len(secrets) == 2 {
			return nil, ErrInvalidSecrets
		}
		secrets = append(secrets, key)
	}
	return secrets, nil
}

// sign returns the header webhook-signature of Standard Webhooks, with a signature by each secret.
func (s Secrets) sign(id string, now time.Time, body []byte) string {
	signatures := make([]string, len(s))
	for i, secret := range s {
		mac := hmac.New(sha256.New, secret)
		_, _ = fmt.Fprintf(mac, "%s.%d.%s", id, now.Unix(), body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(signatures, " ")
}
