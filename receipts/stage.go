package receipts

import (
	"crypto/sha256"
	"fmt"
	netmail "net/mail"
	"regexp"
	"strings"
	"unicode"

	"github.com/google/uuid"

	"example.com/orders-api/internal/postgres"
)

// kind is the kind of this package's jobs in staged_jobs.
const kind = "receipt"

// StageTx queues the INSERT of an order's receipt job in the caller's transaction
// (R15). The caller gets the statement's error when it sends its batch.
//
// The job's id is derived from the order's id, so an order has at most one job. A
// second INSERT violates the primary key and rolls back its transaction; with a
// random id it would send a second mail.
func StageTx(tx postgres.Queuer, accountID, orderID uuid.UUID) {
	tx.Queue(`
		INSERT INTO staged_jobs (
			account_id,
			id,
			kind,
			args
		) VALUES ($1, $2, $3, jsonb_build_object('order_id', $4::uuid))`,
		accountID, jobID(orderID), kind, orderID)
}

// jobID is a UUIDv8, like the other derived ids (R5).
func jobID(orderID uuid.UUID) uuid.UUID {
	return uuid.NewHash(sha256.New(), orderID, []byte("orders-api receipt job"), 8)
}

// maxAddress is the maximum length of an address in SMTP, in bytes (RFC 5321,
// 4.5.3.1.3).
const maxAddress = 254

// parseAddress accepts one plain address, "name@example.com". It is stricter than
// net/mail, which also accepts display names, comments, quoted blanks and invisible
// characters such as U+2028. Non-ASCII letters are accepted.
func parseAddress(text string) (netmail.Address, error) {
	address, err := netmail.ParseAddress(text)
	if err != nil || address.Address != text || len(text) > maxAddress || strings.ContainsFunc(text, unsafeInAddress) {
		return netmail.Address{}, fmt.Errorf("%w: not a plain e-mail address", ErrPermanent)
	}
	return *address, nil
}

// addressPattern is a dot-atom of at most 64 characters at a host name with a dot
// (RFC 5321, 4.5.3.1.1 and 4.1.2). openapi.yaml has the same pattern. RE2 has no
// lookahead, so the pattern does not exclude two dots in a row.
var addressPattern = regexp.MustCompile(
	"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]([A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{0,62}[A-Za-z0-9!#$%&'*+/=?^_`{|}~-])?" +
		`@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

// ValidAddress reports whether an order may have this address: a plain ASCII address
// at a host name. Not every mail server accepts others, and that must not turn out
// after the card was charged.
func ValidAddress(text string) bool {
	return len(text) <= maxAddress && addressPattern.MatchString(text) && !strings.Contains(text, "..")
}

func unsafeInAddress(r rune) bool {
	return !unicode.IsPrint(r) || strings.ContainsRune(` "\<>,;:()[]`, r)
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII })
}
