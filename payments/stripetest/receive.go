package stripetest

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
)

const maxBody = 1 << 20

func (s *Server) receive(r *http.Request, pattern string) (*call, *apiError, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, nil, err
	}
	parameters, malformed := parseForm(string(body), r.URL.RawQuery)
	c := &call{
		request: r,
		pattern: pattern,
		id:      r.PathValue("id"),
		form:    parameters,
		record: &Request{
			ID:       newID("req_", 14),
			Method:   r.Method,
			Path:     r.URL.Path,
			Endpoint: pattern,
			Body:     body,
		},
	}
	if len(body) > maxBody {
		malformed = invalidRequest(http.StatusRequestEntityTooLarge, "", "", "The request body is too large.")
	} else if !formEncoded(r, body) {
		malformed = invalidRequest(http.StatusBadRequest, "", "",
			"Invalid request (check that your POST content type is application/x-www-form-urlencoded).")
	}
	if r.Method == http.MethodPost { // other methods ignore the key
		c.record.Key = r.Header.Get("Idempotency-Key")
		c.key = cmp.Or(c.record.Key, rand.Text())
		_, sent := r.Header["Idempotency-Key"]
		if sent && (c.record.Key == "" || len(c.record.Key) > maxKeyLength) {
			malformed = badKey()
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	c.record.Time = s.now()
	c.record.OrderID = s.orderOf(c)
	s.requests.add(c.record)
	return c, malformed, nil
}

// formEncoded accepts a missing body and, like Stripe, a missing type.
func formEncoded(r *http.Request, body []byte) bool {
	contentType := r.Header.Get("Content-Type")
	if len(body) == 0 || contentType == "" {
		return true
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == "application/x-www-form-urlencoded"
}

func (s *Server) orderOf(c *call) string {
	if order := c.form.values.Get("metadata[order_id]"); order != "" {
		return order
	}
	if pi, ok := s.intents.get(cmp.Or(c.form.values.Get("payment_intent"), c.id)); ok {
		return pi.Metadata["order_id"]
	}
	return ""
}

// Restrict limits an API key to permissions such as "payment_intents:read". Write
// includes read. Other test keys have all permissions.
func (s *Server) Restrict(key string, permissions ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.restricted == nil {
		s.restricted = make(map[string][]string)
	}
	s.restricted[key] = permissions
}

// permit checks a restricted key. Stripe does so before it looks for the object.
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

func apiKey(r *http.Request) string {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		return ""
	}
	return token
}

// authorize accepts test keys. Its errors contain no credential.
func authorize(r *http.Request) *apiError {
	key := apiKey(r)
	kind, mode := keyKind(key)
	switch {
	case key == "":
		return unauthorized("You did not provide an API key. You need to provide your API key in the " +
			"Authorization header, using Bearer auth (e.g. 'Authorization: Bearer YOUR_SECRET_KEY').")
	case mode == "live":
		return unauthorized("This is a stand-in for Stripe that moves no money. It refuses live API keys: " +
			"use a test key, which starts with sk_test_, and consider replacing the key you just sent.")
	case mode != "test":
		return unauthorized("Invalid API Key provided: " + kind + "***")
	}
	return nil
}

func keyKind(key string) (prefix, mode string) {
	for _, prefix := range []string{"sk_test_", "rk_test_", "sk_live_", "rk_live_"} {
		if strings.HasPrefix(key, prefix) {
			return prefix, prefix[3:7]
		}
	}
	return "", ""
}
