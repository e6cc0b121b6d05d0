package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// profile is the profile file: where the server is and what to send. README.md explains
// each member.
type profile struct {
	URL                  string            `yaml:"url"`
	URLs                 []string          `yaml:"urls"`
	Account              map[string]string `yaml:"account"`
	SecondCredential     map[string]string `yaml:"second_credential"`
	SecondAccount        map[string]string `yaml:"second_account"`
	RestrictedCredential map[string]string `yaml:"restricted_credential"`
	Origin               string            `yaml:"origin"`
	KeyHeader            string            `yaml:"key_header"`
	ReplayHeader         string            `yaml:"replay_header"`
	Dialect              dialect           `yaml:"dialect"`
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

	written map[string]map[string]string // credentials with ${NAME}
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
	Query       string            `yaml:"query"`
	Declines    int               `yaml:"declined_status"`
}

// dialect is how a server differs from the profile in form. A declared difference is no
// failure, so that the other clauses can be judged.
type dialect struct {
	Malformed  int    `yaml:"malformed"`
	Reused     int    `yaml:"reused"`
	Expired    int    `yaml:"expired"`
	InProgress int    `yaml:"in_progress"`
	Verdict    string `yaml:"verdict"`     // "none": problems have no member retry
	RetryAfter string `yaml:"retry_after"` // "none"
}

// situation is one of those for which the profile has a status.
type situation string

const (
	malformed  situation = "malformed"
	reused     situation = "reused"
	expired    situation = "expired"
	inProgress situation = "in progress"
)

// status returns the status of the profile and that of the server.
func (d dialect) status(s situation) (profile, declared int) {
	switch s {
	case reused:
		profile, declared = http.StatusUnprocessableEntity, d.Reused
	case expired:
		profile, declared = http.StatusUnprocessableEntity, d.Expired
	case inProgress:
		profile, declared = http.StatusConflict, d.InProgress
	default:
		profile, declared = http.StatusBadRequest, d.Malformed
	}
	return profile, cmp.Or(declared, profile)
}

const (
	noVerdict    = "no retry member"
	noRetryAfter = "no Retry-After"
)

// differs describes the differences from another dialect. That of the profile is empty.
func (d dialect) differs(from dialect) string {
	var parts []string
	for _, s := range []situation{malformed, reused, expired, inProgress} {
		_, wanted := from.status(s)
		if _, declared := d.status(s); declared != wanted && !slices.Contains(parts, strconv.Itoa(declared)) {
			parts = append(parts, strconv.Itoa(declared))
		}
	}
	if d.Verdict == "none" && from.Verdict != "none" {
		parts = append(parts, noVerdict)
	}
	if d.RetryAfter == "none" && from.RetryAfter != "none" {
		parts = append(parts, noRetryAfter)
	}
	return strings.Join(parts, ", ")
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

	Pause      string `yaml:"pause"`
	Resume     string `yaml:"resume"`
	KillStore  string `yaml:"kill_store"`
	StartStore string `yaml:"start_store"`
}

func (c commands) byName() map[string]string {
	return map[string]string{
		"kill": c.Kill, "start": c.Start, "interrupt": c.Interrupt, "restore": c.Restore, "expire": c.Expire,
		"pause": c.Pause, "resume": c.Resume, "kill_store": c.KillStore, "start_store": c.StartStore,
	}
}

const (
	preferAsync = "respond-async"
	preferWait  = "wait"
)

// defaultTakeover is how long a lock may live if the profile file does not say it. A longer
// one would make each pause longer, and most servers have a shorter one or none.
const defaultTakeover = 5 * time.Second

// takeover is the time after which another request can take a key over.
func (p *profile) takeover() time.Duration { return cmp.Or(p.Takeover, defaultTakeover) }

// continued is the time after which a key must not be blocked by a crash. A server that
// documents none has as long as the client waits.
func (p *profile) continued() time.Duration { return cmp.Or(p.Takeover, p.Patience) }

// parseProfile returns every fault of the file at once.
func parseProfile(text []byte, lookup func(string) (string, bool)) (*profile, error) {
	p := &profile{
		KeyHeader: "Idempotency-Key", ReplayHeader: "Idempotent-Replayed",
		Patience: 30 * time.Second, Crashes: 10,
		Operation: operation{Declines: http.StatusPaymentRequired},
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
			c.faults = append(c.faults, errors.New(plain(fault)))
		}
	}
	c.profile(p)
	return p, errors.Join(c.faults...)
}

var (
	unknownMember = regexp.MustCompile(`^(line \d+: )field (\S+) not found in type .*$`)
	wrongType     = regexp.MustCompile(`^(line \d+: )cannot unmarshal (?:!!\w+ )?(.*) into (\S+)$`)
	typeNames     = map[string]string{
		"time.Duration": "a duration, such as 500ms", "int": "a whole number", "string": "a text",
		"map[string]string": "names with texts", "[]string": "a list of texts",
	}
)

// plain replaces the names of Go types in an error.
func plain(fault string) string {
	if parts := unknownMember.FindStringSubmatch(fault); parts != nil {
		return parts[1] + "unknown member " + parts[2]
	}
	parts := wrongType.FindStringSubmatch(fault)
	if parts == nil {
		return fault
	}
	wanted := typeNames[parts[3]]
	switch {
	case wanted != "":
	case strings.HasPrefix(parts[3], "[]"):
		wanted = "a list"
	default:
		wanted = "members with values"
	}
	return fmt.Sprintf("%s%s is not %s", parts[1], cmp.Or(parts[2], "this"), wanted)
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
		return cmp.Or(value, "http://unset.invalid") // which has no other fault
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
	for i := range p.URLs {
		field := fmt.Sprintf("urls[%d]", i)
		c.expand(field, &p.URLs[i])
		p.URLs[i] = strings.TrimSuffix(p.URLs[i], "/")
		c.address(field, p.URLs[i])
	}
	p.written = map[string]map[string]string{
		ownAccount: maps.Clone(p.Account), "second_account": maps.Clone(p.SecondAccount),
		"second_credential": maps.Clone(p.SecondCredential), "restricted_credential": maps.Clone(p.RestrictedCredential),
	}
	c.headers("account", p.Account)
	c.headers("second_account", p.SecondAccount)
	c.headers("second_credential", p.SecondCredential)
	c.headers("restricted_credential", p.RestrictedCredential)
	c.require(token.MatchString(p.KeyHeader), "key_header is not a valid name of a header field")
	c.require(p.ReplayHeader == "" || token.MatchString(p.ReplayHeader), "replay_header is not a valid name of a header field")
	for name, status := range map[string]int{"malformed": p.Dialect.Malformed, "reused": p.Dialect.Reused, "expired": p.Dialect.Expired, "in_progress": p.Dialect.InProgress} {
		c.require(status == 0 || status >= 400 && status <= 499, "dialect.%s must be a status from 400 to 499", name)
	}
	for name, value := range map[string]string{"verdict": p.Dialect.Verdict, "retry_after": p.Dialect.RetryAfter} {
		c.require(value == "" || value == "none", "dialect.%s can only be none", name)
	}
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
	c.require((p.Commands.Pause == "") == (p.Commands.Resume == ""), "commands: pause and resume belong together")
	c.require((p.Commands.KillStore == "") == (p.Commands.StartStore == ""), "commands: kill_store and start_store belong together")
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
	_, err := url.ParseQuery(o.Query)
	c.require(err == nil && !strings.ContainsAny(o.Query, "?# "), "operation.query must be such as currency=eur")
	c.require(o.Declines >= 400 && o.Declines <= 499, "operation.declined_status must be from 400 to 499")
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
