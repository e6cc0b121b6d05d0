package receipts

import (
	"errors"
	"fmt"
)

// ErrPermanent means that a retry cannot succeed: the mail server rejected the
// recipient or the content with a 5xx, or there is nothing to send. Every other
// error is retried.
var ErrPermanent = errors.New("receipts: permanent failure")

// SendError means that the mail server did not accept the mail. It is
// [ErrPermanent] if the server rejected the recipient or the content with a 5xx.
type SendError struct {
	Stage  string // the step that failed, such as "sending SMTP RCPT TO command"
	Code   int    // the server's reply code; 0 if the connection broke
	Status string // the enhanced status code (RFC 3463), such as "5.1.1"; may be empty
	Detail string // the server's own words; may quote the recipient

	permanent bool
}

// Error does not contain Detail: errors are logged, and the recipient's address must
// not be.
func (e *SendError) Error() string {
	switch {
	case e.Code == 0:
		return fmt.Sprintf("receipts: %s: no response", e.Stage)
	case e.Status == "":
		return fmt.Sprintf("receipts: %s: reply %d", e.Stage, e.Code)
	default:
		return fmt.Sprintf("receipts: %s: reply %d %s", e.Stage, e.Code, e.Status)
	}
}

// Is reports whether target is [ErrPermanent] and the error is.
func (e *SendError) Is(target error) bool { return target == ErrPermanent && e.permanent }
