package api

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"example.com/orders-api/internal/accounts"
)

// requireAPIKey rejects a request without a valid API key, and otherwise adds the
// key's account to the context, see [accountID].
func requireAPIKey(authenticator *accounts.Authenticator) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return handlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			apiKey, err := bearerToken(r.Header)
			if err != nil {
				return err
			}
			account, err := authenticator.Authenticate(r.Context(), apiKey)
			if err != nil {
				return err
			}
			logAttrs(r.Context()).add(slog.String("account_id", account.String()))
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey, account)))
			return nil
		})
	}
}

// accountID returns the account of a request that passed [requireAPIKey].
func accountID(ctx context.Context) uuid.UUID {
	account, _ := ctx.Value(accountKey).(uuid.UUID)
	return account
}

// bearerToken returns the token of the Authorization header, which must occur once
// (RFC 6750).
func bearerToken(header http.Header) (string, error) {
	values := header.Values("Authorization")
	if len(values) != 1 {
		return "", accounts.ErrUnauthorized
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", accounts.ErrUnauthorized
	}
	return token, nil
}
