package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/getkin/kin-openapi/openapi3" //nolint:depguard // init reads a document, not the bodies of requests
	"go.yaml.in/yaml/v3"
)

const initHelp = `conformance init OPENAPI_FILE writes a profile file from an OpenAPI document, and lists
what the document does not say. Then run conformance -profile FILE.

`

// runInit is the command "conformance init".
func runInit(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("conformance init", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, initHelp)
		flags.PrintDefaults()
	}
	output := flags.String("output", "conformance.yaml", "the `file` to write; - is the standard output")
	chosen := flags.String("operation", "", "the `operation` to check, such as \"POST /v1/orders\" (default: the first that suits)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("usage: conformance init [-operation OPERATION] [-output FILE] OPENAPI_FILE")
	}
	loader := openapi3.NewLoader()
	loader.IsExternalRefsAllowed = true
	document, err := loader.LoadFromFile(flags.Arg(0))
	if err != nil {
		return fmt.Errorf("%s: %w", flags.Arg(0), err)
	}
	found, err := readDocument(document, *chosen)
	if err != nil {
		return fmt.Errorf("%s: %w", flags.Arg(0), err)
	}
	text, err := found.file(flags.Arg(0))
	if err != nil {
		return err
	}
	if *output == "-" {
		_, err := io.WriteString(stdout, text)
		return err
	}
	file, err := os.OpenFile(*output, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600) // it never replaces a file that was edited
	if err != nil {
		return err
	}
	_, err = io.WriteString(file, text)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s checks %s %s.\n", *output, found.method, found.path)
	if len(found.others) > 0 {
		fmt.Fprintf(stdout, "Others with a key: %s. Choose with -operation.\n", strings.Join(found.others, ", "))
	}
	fmt.Fprintf(stdout, "\nNot found; the file has a comment for each:\n  - %s\n\nNext:\n  %s conformance -profile %s\n",
		strings.Join(found.missing, "\n  - "), strings.Join(found.environment(), " "), *output)
	return nil
}

// found is what a document says about one operation.
type found struct {
	method, path string
	others       []string // operations with a key
	missing      []string // what it does not say, for a person

	servers    []string
	keyHeader  string
	replay     string
	account    map[string]string
	headers    map[string]string
	status     int
	created    map[string]any // the example of a success
	id         string         // in YAML
	body       string
	changed    string
	invalid    string
	declined   string
	declines   int
	dialect    map[string]any
	second     *secondFound
	effects    string // in YAML
	keyStatus  string
	expires    string
	preference []string
}

type secondFound struct {
	method, path, body string
}

func (f *found) lacks(format string, args ...any) {
	f.missing = append(f.missing, fmt.Sprintf(format, args...))
}

// environment returns the variables that the file uses, for a command line.
func (f *found) environment() []string {
	variables := []string{"BASE_URL=" + cmp.Or(firstOf(f.servers), "http://127.0.0.1:8080")}
	for _, value := range f.account {
		if strings.Contains(value, "${API_KEY}") {
			variables = append(variables, "API_KEY=…")
		}
	}
	return variables
}

func firstOf(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// file returns the profile file.
func (f *found) file(source string) (string, error) {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Written by \"conformance init\" from %s. It checks a test system: it sends the operation", source)
	line("# several hundred times. README.md of the command explains each member.")
	for _, missing := range f.missing {
		line("# NOT FOUND: %s", missing)
	}
	line("")
	line("url: ${BASE_URL}%s", comment(" # the document names "+strings.Join(f.servers, ", "), len(f.servers) > 0))
	if err := member(&b, "account", f.account); err != nil {
		return "", err
	}
	line("# second_credential: {%s}", example(f.account, "SECOND_KEY"))
	line("# second_account: {%s}", example(f.account, "OTHER_KEY"))
	if f.keyHeader != "Idempotency-Key" {
		line("key_header: %s", f.keyHeader)
	}
	if f.replay != "Idempotent-Replayed" {
		line("replay_header: %q", f.replay)
	}
	if len(f.dialect) > 0 {
		line("\n# How the documented errors differ from the profile.")
		if err := member(&b, "dialect", f.dialect); err != nil {
			return "", err
		}
	}
	line("\noperation:\n  method: %s\n  path: %s", f.method, f.path)
	if err := nested(&b, "  ", "headers", f.headers); err != nil {
		return "", err
	}
	line("  status: %d\n  id: %s", f.status, f.id)
	line("  body: %s\n  changed: %s\n  invalid: %s", scalar(f.body), scalar(f.changed), scalar(f.invalid))
	if f.declined != "" {
		line("  declined: %s\n  declined_status: %d", scalar(f.declined), f.declines)
	} else {
		line("  # declined: '…' # a request whose failure is final and stored\n  # declined_status: 402")
	}
	if f.second != nil {
		line("\nsecond_operation:\n  method: %s\n  path: %s\n  headers: {Content-Type: application/json}\n  body: %s",
			f.second.method, f.second.path, scalar(f.second.body))
	}
	line("\n# slow: # a request that stays in progress, for duplicates and crashes\n#   lasts: 500ms\n#   body: %s", scalar(f.body))
	line("\n# Count effects at other systems too, such as charges: the server may not show a second one.")
	if f.effects != "" {
		b.WriteString(f.effects)
	} else {
		line("# effects:\n#   - {name: orders, url: /orders, list: /data, id: /id}")
	}
	if f.keyStatus != "" {
		line("\nstatus:\n  path: %s", f.keyStatus)
		if f.expires != "" {
			line("  expires: %s", f.expires)
		}
	}
	if len(f.preference) > 0 {
		line("preferences: [%s]", strings.Join(f.preference, ", "))
	}
	line("\n# retention: 24h # how long the server keeps a response, as documented")
	line("# takeover: 30s # the time after which a crashed request is continued, if the server has locks")
	line("# commands: # without them, no crash, no outage and no expired key is tried\n#   kill: kill -9 $(cat server.pid)\n#   start: ./start-server.sh\n#   expire: ./expire-key.sh \"$IDEMPOTENCY_KEY\"")
	return b.String(), nil
}

func comment(text string, there bool) string {
	if there {
		return text
	}
	return ""
}

// example returns the account's header fields with another variable.
func example(account map[string]string, variable string) string {
	for name, value := range account {
		return fmt.Sprintf("%s: %q", name, strings.ReplaceAll(value, "${API_KEY}", "${"+variable+"}"))
	}
	return `Authorization: "Bearer ${` + variable + `}"`
}

func member(b *strings.Builder, name string, value any) error { return nested(b, "", name, value) }

func nested(b *strings.Builder, indent, name string, value any) error {
	var node yaml.Node
	if err := node.Encode(value); err != nil {
		return err
	}
	node.Style = yaml.FlowStyle
	text, err := yaml.Marshal(map[string]*yaml.Node{name: &node})
	b.WriteString(indent + string(text))
	return err
}

// scalar returns a JSON text as a scalar of YAML.
func scalar(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
