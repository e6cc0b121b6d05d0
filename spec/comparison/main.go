// Command comparison counts what OpenAPI documents declare about idempotent requests, and
// prints a Markdown table for spec/comparison.md:
//
//	go -C spec run ./comparison NAME=FILE...
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

var (
	keyHeader    = regexp.MustCompile(`(?i)^(idempotency-key|paypal-request-id)$`)
	replayHeader = regexp.MustCompile(`(?i)^(x-)?idempoten(t|cy)-replay(ed)?$`)
)

// rows are the counts of the table, in its order.
var rows = []struct {
	title string
	cell  func(counts) string
}{
	{"POST operations", func(c counts) string { return fmt.Sprint(c.posts) }},
	{"key header declared / required", func(c counts) string { return fmt.Sprintf("%d / %d", c.keys, c.required) }},
	{"key in the body", func(c counts) string { return fmt.Sprint(c.bodyKeys) }},
	{"409 / 422 documented", func(c counts) string { return fmt.Sprintf("%d / %d", c.conflict, c.unprocessable) }},
	{"key repeated in the response", func(c counts) string { return fmt.Sprint(c.echoes) }},
	{"replay header / `Retry-After`", func(c counts) string { return fmt.Sprintf("%d / %d", c.replays, c.retryAfter) }},
	{"`application/problem+json`", func(c counts) string { return fmt.Sprint(c.problems) }},
	{"responses with an example", func(c counts) string { return fmt.Sprintf("%d of %d", c.examples, c.responses) }},
	{"error statuses per operation", func(c counts) string { return fmt.Sprintf("%.1f", float64(c.errors)/float64(max(c.posts, 1))) }},
}

// counts are numbers of operations, except the last three: those are numbers of responses.
type counts struct {
	posts, keys, required, bodyKeys, conflict, unprocessable, echoes, replays, retryAfter, problems int

	responses, examples, errors int
}

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "comparison:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("usage: comparison NAME=FILE and more of these")
	}
	names, all := []string{""}, []counts{}
	for _, argument := range arguments {
		name, file, named := strings.Cut(argument, "=")
		if !named {
			return fmt.Errorf("%s: give NAME=FILE", argument)
		}
		content, err := os.ReadFile(file) //nolint:gosec // named on the command line
		if err != nil {
			return err
		}
		d, err := parse(content)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		names, all = append(names, name), append(all, d.count())
	}
	fmt.Fprintf(out, "| %s |\n|%s\n", strings.Join(names, " | "), strings.Repeat(" --- |", len(names)))
	for _, row := range rows {
		cells := []string{row.title}
		for _, c := range all {
			cells = append(cells, row.cell(c))
		}
		fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
	}
	return nil
}

type object = map[string]any

type document struct{ root object }

func parse(content []byte) (document, error) {
	var root object
	var err error
	if bytes.HasPrefix(bytes.TrimSpace(content), []byte("{")) {
		err = json.Unmarshal(content, &root) // ten times as fast
	} else {
		err = yaml.Unmarshal(content, &root)
	}
	if _, ok := root["paths"].(object); err == nil && !ok {
		err = errors.New("no OpenAPI document")
	}
	return document{root}, err
}

// resolve follows references within the document.
func (d document) resolve(value any) object {
	for range 10 {
		o, _ := value.(object)
		ref, ok := o["$ref"].(string)
		if !ok {
			return o
		}
		value = d.root
		for _, name := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
			name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
			value, _ = value.(object)[name]
		}
	}
	return nil
}

func (d document) count() counts {
	var c counts
	for _, item := range d.root["paths"].(object) {
		shared := d.resolve(item)
		post := d.resolve(shared["post"])
		if post == nil {
			continue
		}
		c.posts++
		own, _ := post["parameters"].([]any)
		common, _ := shared["parameters"].([]any)
		for _, parameter := range slices.Concat(common, own) {
			p := d.resolve(parameter)
			if name, _ := p["name"].(string); p["in"] == "header" && keyHeader.MatchString(name) {
				c.keys++
				c.required += one(p["required"] == true)
			}
		}
		c.bodyKeys += one(d.hasBodyKey(d.resolve(post["requestBody"])))
		d.countResponses(&c, d.resolve(post["responses"]))
	}
	return c
}

func (d document) countResponses(c *counts, responses object) {
	c.conflict += one(responses["409"] != nil)
	c.unprocessable += one(responses["422"] != nil)
	var echoes, replays, retryAfter, problems bool
	for status, value := range responses {
		response := d.resolve(value)
		c.errors += one(status == "default" || status >= "4")
		for name := range d.resolve(response["headers"]) {
			echoes = echoes || keyHeader.MatchString(name)
			replays = replays || replayHeader.MatchString(name)
			retryAfter = retryAfter || strings.EqualFold(name, "Retry-After")
		}
		content := d.resolve(response["content"])
		example := false
		for mediaType, body := range content {
			problems = problems || mediaType == "application/problem+json"
			media := d.resolve(body)
			example = example || media["example"] != nil || media["examples"] != nil
		}
		c.responses += one(len(content) > 0)
		c.examples += one(example)
	}
	c.echoes += one(echoes)
	c.replays += one(replays)
	c.retryAfter += one(retryAfter)
	c.problems += one(problems)
}

// hasBodyKey reports whether a member of the body is the key.
func (d document) hasBodyKey(body object) bool {
	for _, content := range d.resolve(body["content"]) {
		schema := d.resolve(d.resolve(content)["schema"])
		if d.resolve(schema["properties"])["idempotency_key"] != nil {
			return true
		}
	}
	return false
}

func one(condition bool) int {
	if condition {
		return 1
	}
	return 0
}
