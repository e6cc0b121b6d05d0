package stripetest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// authorize accepts test keys. Its errors contain no credential.
func authorize(r *http.Request) *apiError {
	key := apiKey(r)
	switch {
	case key == "":
		return unauthorized("You did not provide an API key. You need to provide your API key in the " +
			"Authorization header, using Bearer auth (e.g. 'Authorization: Bearer YOUR_SECRET_KEY').")
	case strings.HasPrefix(key, "sk_live_"), strings.HasPrefix(key, "rk_live_"):
		return unauthorized("This is a fake Stripe that moves no money. It refuses live API keys: " +
			"use a test key, which starts with sk_test_, and consider replacing the key you just sent.")
	case !strings.HasPrefix(key, "sk_test_") && !strings.HasPrefix(key, "rk_test_"):
		return unauthorized("Invalid API Key provided: ***")
	}
	return nil
}

func apiKey(r *http.Request) string {
	_, key, _ := strings.Cut(r.Header.Get("Authorization"), "Bearer ")
	return key
}

// Restrict limits an API key to permissions such as "payment_intents:read".
func (s *Server) Restrict(key string, permissions ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restricted[key] = permissions
}

// permit checks a restricted key, as Stripe does before it looks for the object.
func (s *Server) permit(c *call) *apiError {
	s.mu.Lock()
	permissions, restricted := s.restricted[apiKey(c.request)]
	s.mu.Unlock()
	method, path, _ := strings.Cut(c.pattern, " /v1/")
	resource, _, _ := strings.Cut(path, "/")
	if !restricted || slices.Contains(permissions, resource+":write") ||
		method == http.MethodGet && slices.Contains(permissions, resource+":read") {
		return nil
	}
	return invalidRequest(http.StatusForbidden, "", "", fmt.Sprintf("The provided key 'rk_test_***' does not have the "+
		"required permissions for this endpoint (%s).", c.pattern))
}
