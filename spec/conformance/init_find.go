package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3" //nolint:depguard // init reads a document, not the bodies of requests
)

var (
	namesKey     = regexp.MustCompile(`(?i)idempoten|^paypal-request-id$`)
	namesReplay  = regexp.MustCompile(`(?i)idempoten.*replay|replay.*idempoten`)
	namesFailure = regexp.MustCompile(`(?i)declin|refus|insufficient|fail`)
	namesPending = regexp.MustCompile(`(?i)approval|must approve|authenticat|challenge|requires.?action|pending|3-?d.?s`)
	saysReused   = regexp.MustCompile(`(?i)(reus|already.{0,10}used|different|mismatch|another request|conflict)`)
	saysBusy     = regexp.MustCompile(`(?i)(in[ -_]?progress|in[ -_]?flight|processing|processed|outstanding|concurrent)`)
	saysExpired  = regexp.MustCompile(`(?i)(key.{0,30}expired|expired.{0,10}key)`)
)

// candidate is an operation that may be checked.
type candidate struct {
	method, path string
	item         *openapi3.PathItem
	operation    *openapi3.Operation
	key          *openapi3.Parameter
}

func (c candidate) name() string { return c.method + " " + c.path }

func (c candidate) parameters() []*openapi3.Parameter {
	var all []*openapi3.Parameter
	for _, ref := range slices.Concat(c.operation.Parameters, c.item.Parameters) {
		if ref.Value != nil {
			all = append(all, ref.Value)
		}
	}
	return all
}

// candidates returns the operations with an effect, those that suit best first.
func candidates(document *openapi3.T) []candidate {
	var all []candidate
	for _, path := range document.Paths.Keys() {
		item := document.Paths.Value(path)
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch} {
			c := candidate{method: method, path: path, item: item, operation: item.GetOperation(method)}
			if c.operation == nil {
				continue
			}
			for _, p := range c.parameters() {
				if p.In == openapi3.ParameterInHeader && namesKey.MatchString(p.Name) {
					c.key = p
				}
			}
			all = append(all, c)
		}
	}
	rank := func(c candidate) int {
		score := 0
		for i, holds := range []bool{
			mediaOf(c.operation) != nil, !strings.Contains(c.path, "{"), c.operation.Responses.Status(http.StatusCreated) != nil,
			c.method == http.MethodPost, c.key != nil && c.key.Required, c.key != nil,
		} {
			if holds {
				score += 1 << i
			}
		}
		return -score
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Or(rank(a)-rank(b), cmp.Compare(a.path, b.path)) })
	return all
}

// readDocument reads what a document says about the chosen operation.
func readDocument(document *openapi3.T, chosen string) (*found, error) {
	all := candidates(document)
	if chosen != "" {
		i := slices.IndexFunc(all, func(c candidate) bool { return strings.EqualFold(c.name(), chosen) })
		if i < 0 {
			return nil, fmt.Errorf("there is no operation %q", chosen)
		}
		all = slices.Insert(slices.Delete(slices.Clone(all), i, i+1), 0, all[i])
	}
	if len(all) == 0 {
		return nil, errors.New("no POST, PUT or PATCH operation")
	}
	c := all[0]
	f := &found{method: c.method, path: c.path, keyHeader: "Idempotency-Key", headers: map[string]string{}}
	for _, other := range all[1:] {
		if other.key != nil {
			f.others = append(f.others, other.name())
		}
	}
	if c.key != nil {
		f.keyHeader = c.key.Name
	} else {
		f.lacks("the key's header: %s declares none, so Idempotency-Key is assumed", c.name())
	}
	for _, server := range document.Servers {
		if strings.HasPrefix(server.URL, "http") && !strings.Contains(server.URL, "{") {
			f.servers = append(f.servers, server.URL)
		}
	}
	f.path = f.fillPath(c)
	f.findAccount(document, c)
	f.findHeaders(c)
	f.findBodies(c)
	f.findResponses(c)
	f.findSecond(all[1:])
	f.findReads(document, c)
	f.lacks("second_credential and second_account: IR-6 and IR-7 need them")
	f.lacks("slow: a request that stays in progress; without it, duplicates of a running request are not tried")
	f.lacks("retention and commands: without them, no crash, no outage and no expired key is tried")
	return f, nil
}

// fillPath replaces path parameters by their examples.
func (f *found) fillPath(c candidate) string {
	path := c.path
	for _, p := range c.parameters() {
		if p.In != openapi3.ParameterInPath {
			continue
		}
		value := exampleOf(p.Example, p.Examples, p.Schema)
		if value == nil {
			f.lacks("a value of {%s} in %s", p.Name, c.path)
			continue
		}
		path = strings.ReplaceAll(path, "{"+p.Name+"}", fmt.Sprint(value))
	}
	return path
}

// findAccount chooses the header field of the first scheme that has one.
func (f *found) findAccount(document *openapi3.T, c candidate) {
	required := document.Security
	if c.operation.Security != nil {
		required = *c.operation.Security
	}
	for _, requirement := range required {
		for _, name := range slices.Sorted(maps.Keys(requirement)) {
			if document.Components == nil || document.Components.SecuritySchemes[name] == nil {
				continue
			}
			scheme := document.Components.SecuritySchemes[name].Value
			switch {
			case scheme == nil:
			case scheme.Type == "apiKey" && scheme.In == openapi3.ParameterInHeader:
				f.account = map[string]string{scheme.Name: "${API_KEY}"}
			case scheme.Type == "http" && strings.EqualFold(scheme.Scheme, "basic"):
				f.account = map[string]string{"Authorization": "Basic ${API_KEY}"}
			case scheme.Type == "http" || scheme.Type == "oauth2" || scheme.Type == "openIdConnect":
				f.account = map[string]string{"Authorization": "Bearer ${API_KEY}"}
			}
			if f.account != nil {
				return
			}
		}
	}
	f.account = map[string]string{}
	f.lacks("the credentials: the document declares no header field for them")
}

func (f *found) findHeaders(c candidate) {
	if media := mediaOf(c.operation); media != nil {
		f.headers["Content-Type"] = "application/json"
	}
	for _, p := range c.parameters() {
		if p.In != openapi3.ParameterInHeader || !p.Required || p == c.key || f.account[p.Name] != "" {
			continue
		}
		if value := exampleOf(p.Example, p.Examples, p.Schema); value != nil {
			f.headers[p.Name] = fmt.Sprint(value)
			continue
		}
		f.headers[p.Name] = "TODO"
		f.lacks("a value of the required header field %s", p.Name)
	}
}

// mediaOf returns the JSON body of an operation.
func mediaOf(o *openapi3.Operation) *openapi3.MediaType {
	if o.RequestBody == nil || o.RequestBody.Value == nil {
		return nil
	}
	return o.RequestBody.Value.Content.Get("application/json")
}

func exampleOf(one any, several openapi3.Examples, schema *openapi3.SchemaRef) any {
	if one != nil {
		return one
	}
	for _, name := range slices.Sorted(maps.Keys(several)) {
		if several[name].Value != nil && several[name].Value.Value != nil {
			return several[name].Value.Value
		}
	}
	if schema == nil || schema.Value == nil {
		return nil
	}
	for _, value := range append([]any{schema.Value.Example, schema.Value.Const, schema.Value.Default}, slices.Concat(schema.Value.Examples, schema.Value.Enum)...) {
		if value != nil {
			return value
		}
	}
	return nil
}

// longestExample exceeds the length of each example, so that it ranks some after all others.
const longestExample = 1 << 30

func (f *found) findBodies(c candidate) {
	media := mediaOf(c.operation)
	if media == nil {
		f.lacks("operation.body: the operation has no body in JSON")
		f.lacks("operation.changed and operation.invalid")
		return
	}
	var schema *openapi3.Schema
	if media.Schema != nil {
		schema = media.Schema.Value
	}
	var body any
	// The shortest example, because optional members may have to be unique, such as a reference.
	// One whose request waits for an action has no final response.
	best := 0
	for _, name := range slices.Sorted(maps.Keys(media.Examples)) {
		e := media.Examples[name].Value
		if e == nil || e.Value == nil {
			continue
		}
		if namesFailure.MatchString(name + e.Summary) {
			f.declined = cmp.Or(f.declined, encode(e.Value))
			continue
		}
		size := len(encode(e.Value))
		if namesPending.MatchString(name + e.Summary) {
			size += longestExample
		}
		if body == nil || size < best {
			body, best = e.Value, size
		}
	}
	if media.Example != nil {
		body = media.Example
	}
	if body == nil && schema != nil {
		body = generate(media.Schema, 0)
		f.lacks("an example of the body: it was made from the schema, so its values may not mean anything")
	}
	if body == nil {
		f.lacks("operation.body, changed and invalid")
		return
	}
	f.body = encode(body)
	if changed, where := vary(schema, body); changed != "" {
		f.changed = changed
	} else {
		f.lacks("operation.changed: %s", cmp.Or(where, "no value can be changed"))
	}
	if f.invalid = violate(schema, body); f.invalid == "" {
		f.lacks("operation.invalid: the schema has no constraint that a value of the body can violate")
	}
}

func (f *found) findResponses(c candidate) {
	responses := c.operation.Responses.Map()
	f.dialect = map[string]any{}
	documented := make(map[string][]int)
	var verdict, after bool
	for _, name := range slices.Sorted(maps.Keys(responses)) {
		response := responses[name].Value
		if response == nil {
			continue
		}
		for header := range response.Headers {
			after = after || strings.EqualFold(header, "Retry-After")
			if namesReplay.MatchString(header) {
				f.replay = header
			}
		}
		status, err := strconv.Atoi(name)
		if err != nil || status < 200 || status >= 500 {
			continue
		}
		if status < 300 {
			f.success(status, response)
			continue
		}
		for _, media := range response.Content {
			verdict = verdict || hasProperty(media.Schema, "retry", 0)
		}
		content, _ := json.Marshal(response.Content)
		about := string(content)
		if response.Description != nil {
			about = *response.Description + about
		}
		for name, s := range situations() {
			if namesKey.MatchString(about) && s.says.MatchString(about) {
				documented[name] = append(documented[name], status)
			}
		}
	}
	if f.status == 0 {
		f.status = http.StatusOK
		f.lacks("operation.status: no success is documented")
	}
	if f.id == "" {
		f.id = "{pointer: /id}"
		f.lacks("operation.id: where a response has the id of what it created")
	}
	if f.replay == "" {
		f.lacks("replay_header: no header field that marks a replay is documented")
	}
	f.declines = http.StatusPaymentRequired
	if responses["402"] == nil {
		f.declined = ""
	}
	if f.declined == "" {
		f.lacks("operation.declined: a request whose failure is final and stored (IR-19)")
	}
	for name, s := range situations() {
		if statuses := documented[name]; len(statuses) > 0 && !slices.Contains(statuses, s.profile) {
			f.dialect[name] = statuses[0]
		}
	}
	if !verdict {
		f.dialect["verdict"] = "none"
	}
	if !after {
		f.dialect["retry_after"] = "none"
	}
	if responses["422"] == nil && f.dialect["reused"] == nil {
		f.lacks("dialect.reused: the status of a key that another request has used")
	}
	if responses["409"] == nil && f.dialect["in_progress"] == nil {
		f.lacks("dialect.in_progress: the status of a key whose request is in progress")
	}
}

// situations are those whose status a document may have instead of the profile's.
func situations() map[string]struct {
	profile int
	says    *regexp.Regexp
} {
	return map[string]struct {
		profile int
		says    *regexp.Regexp
	}{"reused": {422, saysReused}, "in_progress": {409, saysBusy}, "expired": {422, saysExpired}}
}

func (f *found) success(status int, response *openapi3.Response) {
	if status == http.StatusAccepted || f.status != 0 && status != http.StatusCreated {
		return
	}
	f.status, f.created = status, nil
	media := response.Content.Get("application/json")
	if media != nil {
		example := exampleOf(media.Example, media.Examples, media.Schema)
		f.created, _ = example.(map[string]any)
		if pointer := idPointer(media.Schema, example); pointer != "" {
			f.id = "{pointer: " + pointer + "}"
			return
		}
	}
	for header := range response.Headers {
		if strings.EqualFold(header, "Location") {
			f.id = "{header: Location}"
		}
	}
}

func (f *found) findSecond(all []candidate) {
	for _, c := range all {
		media := mediaOf(c.operation)
		if c.key == nil || media == nil {
			continue
		}
		scratch := &found{}
		path := scratch.fillPath(c)
		body := exampleOf(media.Example, media.Examples, nil)
		if body == nil {
			body = generate(media.Schema, 0)
		}
		if body != nil && !strings.Contains(path, "{") && path != f.path {
			f.second = &secondFound{method: c.method, path: path, body: encode(body)}
			return
		}
	}
	f.lacks("second_operation: another operation with a key (IR-7, IR-8)")
}

// findReads looks for a list of what the operation creates, and for the status of a key.
func (f *found) findReads(document *openapi3.T, c candidate) {
	if get := c.item.Get; get != nil {
		list, id, items := listOf(get)
		url := f.path
		for _, p := range get.Parameters {
			if p.Value != nil && p.Value.In == openapi3.ParameterInQuery && p.Value.Name == "limit" && p.Value.Schema != nil && p.Value.Schema.Value.Max != nil {
				url += fmt.Sprintf("?limit=%.0f", *p.Value.Schema.Value.Max)
			}
		}
		if id != "" {
			name := f.path[strings.LastIndex(f.path, "/")+1:]
			f.effects = fmt.Sprintf("effects:\n  - name: %s\n    url: %s\n    list: %q\n    id: %s\n", name, url, list, id)
			f.effects += f.only(items)
		}
	}
	if f.effects == "" {
		f.lacks("effects: how to count what was executed; without it, most violations of safety cannot be seen")
	} else {
		f.lacks("effects at other systems, such as charges")
	}
	for _, path := range document.Paths.Keys() {
		get := document.Paths.Value(path).Get
		if get == nil || !namesKey.MatchString(path) || strings.Count(path, "{") != 1 {
			continue
		}
		f.keyStatus = regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(path, "{key}")
		if response := get.Responses.Status(http.StatusOK); response != nil && response.Value != nil {
			if media := response.Value.Content.Get("application/json"); media != nil {
				for _, name := range []string{"expires_at", "expiresAt", "expires"} {
					if f.expires == "" && hasProperty(media.Schema, name, 0) {
						f.expires = "/" + name
					}
				}
			}
		}
	}
	if f.keyStatus == "" {
		f.lacks("status: the resource that returns the state of a key (IR-47)")
	}
	for _, p := range c.parameters() {
		if p.In == openapi3.ParameterInHeader && strings.EqualFold(p.Name, "Prefer") {
			for _, preference := range []string{preferAsync, preferWait} {
				if strings.Contains(p.Description, preference) {
					f.preference = append(f.preference, preference)
				}
			}
		}
	}
}

// only selects the items that have the state of a success.
func (f *found) only(items *openapi3.SchemaRef) string {
	for _, name := range []string{"status", "state"} {
		if state, ok := f.created[name].(string); ok && hasProperty(items, name, 0) {
			return fmt.Sprintf("    only: {/%s: %s}\n", name, state)
		}
	}
	return ""
}

// listOf returns where a response has a list, and where an item has its id.
func listOf(get *openapi3.Operation) (list, id string, items *openapi3.SchemaRef) {
	response := get.Responses.Status(http.StatusOK)
	if response == nil || response.Value == nil {
		return "", "", nil
	}
	media := response.Value.Content.Get("application/json")
	if media == nil || media.Schema == nil {
		return "", "", nil
	}
	if items := itemsOf(media.Schema); items != nil {
		return "", idPointer(items, nil), items
	}
	properties := propertiesOf(media.Schema, 0)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if items := itemsOf(properties[name]); items != nil {
			if id := idPointer(items, nil); id != "" {
				return "/" + name, id, items
			}
		}
	}
	return "", "", nil
}
