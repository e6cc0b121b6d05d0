package receipts

import (
	"errors"
	"fmt"
)

// ErrPermanent marks a failure that no retry can heal: the mail server refused
// the recipient or the mail with a 5xx, or there is nothing to send. A [Mailer]
// wraps it; every other error is retried.
var ErrPermanent = errors.New("receipts: refused for good")

// SendError is a dialogue that ended without the mail server accepting the
// mail. It is [ErrPermanent] when a 5xx answered the recipient or the content.
type SendError struct {
	Stage  string // what was going on, such as "sending SMTP RCPT TO command"
	Code   int    // the server's reply code; 0 when the connection broke instead
	Status string // its enhanced status (RFC 3463), such as "5.1.1"; may be empty
	Detail string // the whole story in the server's words; may quote the recipient

	permanent bool
}

// Error leaves Detail out, because errors are logged and the recipient's
// address must not be.
func (e *SendError) Error() string {
	switch {
	case e.Code == 0:
		return fmt.Sprintf("receipts: %s: no answer", e.Stage)
	case e.Status == "":
		return fmt.Sprintf("receipts: %s: answered %d", e.Stage, e.Code)
	default:
		return fmt.Sprintf("receipts: %s: answered %d %s", e.Stage, e.Code, e.Status)
	}
}

// Is reports whether the error is final.
func (e *SendError) Is(target error) bool { return target == ErrPermanent && e.permanent }
