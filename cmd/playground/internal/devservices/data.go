package devservices

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/migrations"
)

// Folder returns the data folder of `playground run`. Clones, renamed projects and providers do not share a
// folder, because the orders of one have no payments at the provider of another.
func Folder(stripe app.Stripe) (string, error) {
	working, err := os.Getwd()
	if err == nil {
		working, err = filepath.EvalSymlinks(working)
	}
	if err != nil {
		return "", fmt.Errorf("find the working directory, which names the data folder of playground run: %w", err)
	}
	module := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Path
	}
	provider := "" // the fake
	if stripe.SecretKey != "" {
		provider = stripe.ProviderURL()
	}
	return embeddedpg.CacheDir("dev", folderName(cmp.Or(module, "orders"), working, provider))
}

// folderName returns the name of the folder. The clone is the nearest folder with a go.mod, from the working
// directory upwards.
func folderName(module, working, provider string) string {
	clone := working
	for dir := working; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			clone = dir
			break
		}
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{module, clone, provider}, "\n")))
	return fmt.Sprintf("%s-%x", path.Base(module), sum[:4])
}

// Migrate applies all pending migrations.
func Migrate(ctx context.Context, d app.Database) error {
	return app.Migrate(ctx, d, slog.New(slog.DiscardHandler), func(migrator *migrations.Migrator) error {
		_, err := migrator.Up(ctx)
		return err
	})
}

// EventsSecret returns a new secret that signs events.
func EventsSecret() app.Secret {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return app.Secret("whsec_" + base64.StdEncoding.EncodeToString(secret))
}

// APIKey returns an account and its API key. Both stay the same after a restart, so that the user's curl
// commands keep working. If the key was revoked, the account gets another one. The file has the keys of
// each database.
func APIKey(ctx context.Context, pool *pgxpool.Pool, path string) (account uuid.UUID, key string, err error) {
	stored, err := os.ReadFile(path) //nolint:gosec // the path is in our cache folder
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return account, "", fmt.Errorf("read the API key of playground run: %w", err)
	}
	authenticator := accounts.NewAuthenticator(pool, time.Now)
	for key := range strings.FieldsSeq(string(stored)) {
		if account, err = authenticator.Authenticate(ctx, key); !errors.Is(err, accounts.ErrUnauthorized) {
			return account, key, err
		}
	}
	existing, err := accounts.ListKeys(ctx, pool, uuid.Nil)
	revoked := slices.IndexFunc(existing, func(k accounts.Key) bool { return strings.Contains(string(stored), k.Prefix) })
	switch {
	case err != nil && !errors.Is(err, accounts.ErrAccountNotFound):
	case revoked < 0:
		account, key, err = accounts.Create(ctx, pool, "dev")
	default:
		account = existing[revoked].AccountID
		_, key, err = accounts.CreateKey(ctx, pool, account)
	}
	if err != nil {
		return account, "", err
	}
	if err := os.WriteFile(path, fmt.Appendln(stored, key), 0o600); err != nil {
		return account, "", fmt.Errorf("store the API key of playground run: %w", err)
	}
	return account, key, nil
}
