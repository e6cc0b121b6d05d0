package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"example.com/orders-api/api"
	"example.com/orders-api/client"
)

func (c contract) checkProblem(got response) (slug string, err error) {
	if got.status < 400 {
		return "", nil
	}
	if contentType := got.header.Get("Content-Type"); contentType != "application/problem+json" {
		return "", fmt.Errorf("status %d as %q", got.status, contentType)
	}
	if got.head {
		return "", nil
	}
	var p problem
	if err := json.Unmarshal(got.body, &p); err != nil {
		return "", err
	}
	slug = p.slug()
	waits := p.Retry == client.RetrySameKey && slug != "internal-error"
	switch {
	case p.Status != got.status:
		err = fmt.Errorf("status %d, and %d in the body", got.status, p.Status)
	case (got.header.Get("Retry-After") != "") != waits:
		err = fmt.Errorf("Retry-After %q", got.header.Get("Retry-After"))
	case got.status == http.StatusMethodNotAllowed && got.header.Get("Allow") == "":
		err = errors.New("no Allow")
	case p.RequestID == "":
	case p.RequestID != got.header.Get("X-Request-Id"):
		err = fmt.Errorf("request_id %q", p.RequestID)
	case got.header.Get("Idempotent-Replayed") != "":
		err = errors.New("a replay of what is not stored")
	}
	if err == nil {
		err = c.checkProblemSchema(slug, got.body)
	}
	if err != nil {
		return slug, fmt.Errorf("problem %q: %w", slug, err)
	}
	coverage.record("problem " + slug)
	return slug, nil
}

func (c contract) checkProblemSchema(slug string, body []byte) error {
	own, known := api.DocumentedProblems()[slug]
	if !known {
		return errors.New("not documented")
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err == nil {
		err = c.schemas.validate(c.doc.Components.Schemas["ProblemDetails"].Value, value)
	}
	if err != nil {
		return err
	}
	members := value.(map[string]any)
	for name := range members {
		if _, known := own.Members[name]; !known {
			err = errors.Join(err, fmt.Errorf("member %s is not documented", name))
		}
	}
	for name, required := range own.Members {
		if _, present := members[name]; required && !present {
			err = errors.Join(err, fmt.Errorf("no member %s", name))
		}
	}
	for name, allowed := range map[string][]string{"status": {strconv.Itoa(own.Status)}, "retry": own.Retry, "outcome": own.Outcome} {
		if got := fmt.Sprint(members[name]); !slices.Contains(allowed, got) {
			err = errors.Join(err, fmt.Errorf("%s %s", name, got))
		}
	}
	return err
}

type problem struct{ client.Problem }

func (p problem) slug() string { return strings.TrimPrefix(p.Type, "/problems/") }

func (p problem) pointers() []string {
	var pointers []string
	for _, e := range p.Errors {
		pointers = append(pointers, e.Pointer)
	}
	return pointers
}

func checkDocumentedProblem(of string, content openapi3.Content, slug string) error {
	if slug == "" {
		return nil
	}
	problems := content["application/problem+json"]
	examples := []any{problems.Example}
	for _, e := range problems.Examples {
		examples = append(examples, e.Value.Value)
	}
	for _, e := range examples {
		if example, ok := e.(map[string]any); ok && example["type"] == "/problems/"+slug {
			return nil
		}
	}
	return fmt.Errorf("%s has no example of %s", of, slug)
}
