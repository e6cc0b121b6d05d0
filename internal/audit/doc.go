// Package audit writes and reads the audit log, which an account's requests and operators share.
package audit
