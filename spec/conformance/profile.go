package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// profile is the profile file: where the server is and what to send. README.md explains
// each member.
type profile struct {
	URL                  string            `yaml:"url"`
	Account              map[string]string `yaml:"account"`
	SecondCredential     map[string]string `yaml:"second_credential"`
	SecondAccount        map[string]string `yaml:"second_account"`
	RestrictedCredential map[string]string `yaml:"restricted_credential"`
	Origin               string            `yaml:"origin"`
	KeyHeader            string            `yaml:"key_header"`
	ReplayHeader         string            `yaml:"replay_header"`
	Operation            operation         `yaml:"operation"`
	SecondOperation      *otherOperation   `yaml:"second_operation"`
	Slow                 *slowRequest      `yaml:"slow"`
	Effects              []effect          `yaml:"effects"`
	Status               *statusResource   `yaml:"status"`
	Preferences          []string          `yaml:"preferences"`
	Overload             int               `yaml:"overload"`
	Retention            time.Duration     `yaml:"retention"`
	Takeover             time.Duration     `yaml:"takeover"`
	Patience             time.Duration     `yaml:"patience"`
	Crashes              int               `yaml:"crashes"`
	Commands             commands          `yaml:"commands"`
}

type operation struct {
	Method      string            `yaml:"method"`
	Path        string            `yaml:"path"`
	Headers     map[string]string `yaml:"headers"`
	Status      int               `yaml:"status"`
	ID          location          `yaml:"id"`
	Body        string            `yaml:"body"`
	Changed     string            `yaml:"changed"`
	Invalid     string            `yaml:"invalid"`
	Declined    string            `yaml:"declined"`
	Significant map[string]string `yaml:"significant"`
}

// location is where a response has a value.
type location struct {
	Pointer string `yaml:"pointer"`
	Header  string `yaml:"header"`
}

type otherOperation struct {
	Method  string            `yaml:"method"`
	Path    string            `yaml:"path"`
	Headers map[string]string `yaml:"headers"`
	Body    string            `yaml:"body"`
}

// slowRequest stays in progress for at least Lasts.
type slowRequest struct {
	Body  string        `yaml:"body"`
	Lasts time.Duration `yaml:"lasts"`
}

// effect is a GET whose response counts what was executed: a number, or a list whose
// items have an id.
type effect struct {
	Name    string            `yaml:"name"`
	URL     string            `yaml:"url"`
	Headers map[string]string `yaml:"headers"`
	Number  *string           `yaml:"number"`
	List    *string           `yaml:"list"`
	ID      string            `yaml:"id"`
	Only    map[string]string `yaml:"only"`
}

type statusResource struct {
	Path    string `yaml:"path"`
	Expires string `yaml:"expires"`
}

type commands struct {
	Kill      string `yaml:"kill"`
	Start     string `yaml:"start"`
	Interrupt string `yaml:"interrupt"`
	Restore   string `yaml:"restore"`
	Expire    string `yaml:"expire"`
}

const (
	preferAsync = "respond-async"
	preferWait  = "wait"
)

// parseProfile returns every fault of the file at once.
func parseProfile(text []byte, lookup func(string) (string, bool)) (*profile, error) {
	p := &profile{
		KeyHeader: "Idempotency-Key", ReplayHeader: "Idempotent-Replayed",
		Patience: 30 * time.Second, Crashes: 10,
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	c := checker{lookup: lookup}
	if err := decoder.Decode(p); err != nil {
		var several *yaml.TypeError
		if !errors.As(err, &several) {
			return nil, err
		}
		for _, fault := range several.Errors {
			c.faults = append(c.faults, errors.New(fault))
		}
	}
	c.profile(p)
	return p, errors.Join(c.faults...)
}

type checker struct {
	lookup func(string) (string, bool)
	faults []error
}

func (c *checker) require(ok bool, format string, args ...any) {
	if !ok {
		c.faults = append(c.faults, fmt.Errorf(format, args...))
	}
}

var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// expand replaces ${NAME} by the environment variable.
func (c *checker) expand(field string, text *string) {
	*text = variable.ReplaceAllStringFunc(*text, func(reference string) string {
		name := variable.FindStringSubmatch(reference)[1]
		value, _ := c.lookup(name)
		c.require(value != "", "%s: the environment variable %s is not set", field, name)
		return value
	})
}

func (c *checker) headers(field string, headers map[string]string) {
	for name, value := range headers {
		c.expand(field+"."+name, &value)
		headers[name] = value
		c.require(validHeader(name, value), "%s.%s is not a valid header field", field, name)
	}
}

var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

func validHeader(name, value string) bool {
	return token.MatchString(name) && !strings.ContainsAny(value, "\r\n\x00")
}

func (c *checker) profile(p *profile) {
	c.expand("url", &p.URL)
	p.URL = strings.TrimSuffix(p.URL, "/")
	c.address("url", p.URL)
	c.headers("account", p.Account)
	c.headers("second_account", p.SecondAccount)
	c.headers("second_credential", p.SecondCredential)
	c.headers("restricted_credential", p.RestrictedCredential)
	c.require(token.MatchString(p.KeyHeader), "key_header is not a valid name of a header field")
	c.require(p.ReplayHeader == "" || token.MatchString(p.ReplayHeader), "replay_header is not a valid name of a header field")
	c.operation(&p.Operation)
	if o := p.SecondOperation; o != nil {
		c.target("second_operation", o.Method, o.Path)
		c.headers("second_operation.headers", o.Headers)
		c.require(o.Method != p.Operation.Method || o.Path != p.Operation.Path, "second_operation is the same as operation")
		trim(&o.Body)
	}
	if p.Slow != nil {
		trim(&p.Slow.Body)
		c.require(p.Slow.Body != "", "slow.body is required")
		c.require(p.Slow.Lasts > 0, "slow.lasts must be positive, such as 500ms")
	}
	for i := range p.Effects {
		c.effect(fmt.Sprintf("effects[%d]", i), &p.Effects[i], p)
	}
	if p.Status != nil {
		c.require(strings.HasPrefix(p.Status.Path, "/") && strings.Contains(p.Status.Path, "{key}"), "status.path must begin with / and contain {key}")
		c.pointer("status.expires", p.Status.Expires)
	}
	for _, preference := range p.Preferences {
		c.require(preference == preferAsync || preference == preferWait, "preferences: unknown preference %q", preference)
	}
	c.require(p.Overload >= 0, "overload must not be negative")
	c.require(p.Retention >= 0, "retention must not be negative")
	c.require(p.Takeover >= 0, "takeover must not be negative")
	c.require(p.Patience > 0, "patience must be positive")
	c.require(p.Crashes > 0, "crashes must be positive")
	c.require((p.Commands.Kill == "") == (p.Commands.Start == ""), "commands: kill and start belong together")
	c.require((p.Commands.Interrupt == "") == (p.Commands.Restore == ""), "commands: interrupt and restore belong together")
	c.require(p.Commands.Kill == "" || p.Takeover > 0, "takeover is required with commands.kill: the documented time after which a crashed request is continued")
}

func (c *checker) address(field, address string) {
	u, err := url.Parse(address)
	c.require(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "%s must be an http or https URL", field)
	c.require(err != nil || u.User == nil, "%s must not contain credentials; put them into the headers", field)
}

func (c *checker) target(field, method, path string) {
	c.require(token.MatchString(method), "%s.method is required, such as POST", field)
	c.require(strings.HasPrefix(path, "/") && !strings.ContainsAny(path, "?# "), "%s.path must begin with / and have no query", field)
}

func (c *checker) operation(o *operation) {
	c.target("operation", o.Method, o.Path)
	c.require(!slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, o.Method), "operation.method must be a method with an effect")
	c.headers("operation.headers", o.Headers)
	c.headers("operation.significant", o.Significant)
	c.require(o.Status >= 200 && o.Status <= 299, "operation.status must be the status of success, from 200 to 299")
	c.require((o.ID.Pointer == "") != (o.ID.Header == ""), "operation.id must have either a pointer or a header")
	c.pointer("operation.id.pointer", o.ID.Pointer)
	trim(&o.Body, &o.Changed, &o.Invalid, &o.Declined)
	c.require(o.Body != "", "operation.body is required")
	c.require(o.Changed != "", "operation.changed is required")
	c.require(o.Invalid != "", "operation.invalid is required")
	bodies := slices.DeleteFunc([]string{o.Body, o.Changed, o.Invalid, o.Declined}, func(body string) bool { return body == "" })
	given := len(bodies)
	slices.Sort(bodies)
	c.require(len(slices.Compact(bodies)) == given, "operation: body, changed, invalid and declined must differ")
}

func (c *checker) effect(field string, e *effect, p *profile) {
	c.expand(field+".url", &e.URL)
	if strings.HasPrefix(e.URL, "/") {
		e.URL = p.URL + e.URL
		if e.Headers == nil {
			e.Headers = p.Account
		}
	}
	c.address(field+".url", e.URL)
	c.headers(field+".headers", e.Headers)
	c.require(e.Name != "", "%s.name is required", field)
	c.require((e.Number == nil) != (e.List == nil), "%s must have either number or list", field)
	for _, pointer := range []*string{e.Number, e.List} {
		if pointer != nil {
			c.pointer(field, *pointer)
		}
	}
	c.require(e.List == nil || e.ID != "", "%s.id is required with list: the pointer to the id of an item", field)
	c.require(e.List != nil || len(e.Only) == 0, "%s.only needs a list", field)
	c.pointer(field+".id", e.ID)
	for pointer := range e.Only {
		c.pointer(field+".only", pointer)
	}
}

// pointer requires an empty text or a JSON pointer (RFC 6901).
func (c *checker) pointer(field, pointer string) {
	c.require(pointer == "" || strings.HasPrefix(pointer, "/"), "%s: %q is not a JSON pointer", field, pointer)
}

// trim removes the line end that a block of YAML adds.
func trim(bodies ...*string) {
	for _, body := range bodies {
		*body = strings.TrimRight(*body, "\n")
	}
}
