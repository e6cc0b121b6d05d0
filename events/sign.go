package events

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Key is a signing key of the program, from which the secrets of all endpoints derive, so that the
// database has none of them.
type Key string

// Keys are the current signing key and, while it is rotated, the previous one.
type Keys []Key

func (k Key) mac(text string) []byte {
	mac := hmac.New(sha256.New, []byte(k))
	_, _ = mac.Write([]byte(text))
	return mac.Sum(nil)
}

// fingerprint identifies the key with which an endpoint's secret was printed.
func (k Key) fingerprint() []byte { return k.mac("orders-api signing key")[:8] }

func (k Key) secret(endpoint uuid.UUID, version int) Key {
	return Key(k.mac(fmt.Sprintf("orders-api endpoint %s/%d", endpoint, version)))
}

// printed returns the secret that the shop has, unless its signing key is not configured.
func (keys Keys) printed(e Endpoint) (string, error) {
	for _, key := range keys {
		if bytes.Equal(key.fingerprint(), e.KeyFingerprint) {
			return "whsec_" + base64.StdEncoding.EncodeToString([]byte(key.secret(e.ID, e.SecretVersion))), nil
		}
	}
	return "", ErrUnknownKey
}

// ErrUnknownKey means that an endpoint's secret derives from a signing key that is not configured.
var ErrUnknownKey = errors.New("the endpoint's secret was printed with another EVENTS_SIGNING_KEY: " +
	"set EVENTS_SIGNING_KEY_PREVIOUS to it, or print a new secret (orders accounts endpoint rotate)")

// sign returns the header webhook-signature of Standard Webhooks. While the endpoint's secret or the
// signing key is rotated, it has a signature by each secret that the shop may have.
func (keys Keys) sign(e Endpoint, id string, now time.Time, body []byte) (string, error) {
	if _, err := keys.printed(e); err != nil { // the shop would reject each signature
		return "", err
	}
	versions := []int{e.SecretVersion}
	if e.RotatedAt != nil && now.Sub(*e.RotatedAt) < 24*time.Hour {
		versions = append(versions, e.SecretVersion-1)
	}
	var signatures []string
	for _, key := range keys {
		for _, version := range versions {
			signature := key.secret(e.ID, version).mac(fmt.Sprintf("%s.%d.%s", id, now.Unix(), body))
			signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(signature))
		}
	}
	return strings.Join(signatures, " "), nil
}
