package devservices

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/accounts"
)

// APIKey returns an API key that is the same after a restart, so that a curl line in a
// shell's history keeps working. The file at path has one key for each database.
func APIKey(ctx context.Context, pool *pgxpool.Pool, path string) (string, error) {
	stored, err := os.ReadFile(path) //nolint:gosec // in the program's cache folder
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read API key of dev: %w", err)
	}
	authenticator, err := accounts.NewAuthenticator(accounts.Config{Pool: pool, Clock: time.Now}) // before the first request
	if err != nil {
		return "", err
	}
	for key := range strings.FieldsSeq(string(stored)) {
		if _, err := authenticator.Authenticate(ctx, key); !errors.Is(err, accounts.ErrUnauthorized) {
			return key, err
		}
	}
	_, key, err := accounts.Create(ctx, pool, "dev")
	if err != nil {
		return "", err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // the same
	if err == nil {
		_, err = fmt.Fprintln(file, key)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return "", fmt.Errorf("store API key of dev: %w", err)
	}
	return key, nil
}
