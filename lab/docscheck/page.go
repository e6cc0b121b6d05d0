// Package docscheck parses the Markdown pages of this repository. Its tests check each
// link, each name of a file, make target, variable or test, and each command. It supports
// the parts of Markdown and of the shell that the pages use, and returns an error for
// others.
package docscheck

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Page is one Markdown file.
type Page struct {
	Path   string // from the root of the repository, with slashes
	Blocks []Block
	Prose  string // everything outside of blocks, with empty lines in their place
}

// Block is a fenced block.
type Block struct {
	Page     string
	Line     int // of its first line, from 1
	Language string
	Lines    []string // without the indentation of the fence
}

// At returns the position as path:line.
func (b Block) At() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Pages parses all pages below a root that Walk visits.
func Pages(root fs.FS) ([]Page, error) {
	var pages []Page
	err := Walk(root, func(path string, content []byte) error {
		if !strings.HasSuffix(path, ".md") {
			return nil
		}
		page, err := parse(path, string(content))
		pages = append(pages, page)
		return err
	})
	return pages, err
}

// Walk visits every file except build results, dependencies, test data and hidden
// folders.
func Walk(root fs.FS, visit func(path string, content []byte) error) error {
	return fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (slices.Contains([]string{"bin", "node_modules", "testdata", "receipts-out"}, name) ||
			strings.HasPrefix(name, ".") && name != "." && name != ".github" && name != ".devcontainer"):
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		content, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		return visit(path, content)
	})
}

var fence = regexp.MustCompile("^(\\s*)(```+)\\s*([\\w-]*)")

func parse(path, text string) (Page, error) {
	page := Page{Path: path}
	var prose strings.Builder
	var open *Block
	var indent, ticks string
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		mark := fence.FindStringSubmatch(line)
		switch {
		case open == nil && mark != nil:
			indent, ticks = mark[1], mark[2]
			open = &Block{Page: path, Line: number + 1, Language: mark[3]}
		case open == nil:
			prose.WriteString(line)
		case mark != nil && mark[2] == ticks && mark[3] == "":
			page.Blocks = append(page.Blocks, *open)
			open = nil
		default:
			open.Lines = append(open.Lines, strings.TrimPrefix(line, indent))
		}
		prose.WriteByte('\n')
	}
	page.Prose = prose.String()
	if open != nil {
		return page, fmt.Errorf("%s: the block is never closed", open.At())
	}
	return page, nil
}

var span = regexp.MustCompile("(?s)(`+)(.+?)`+")

// Spans returns the texts between backticks in the prose.
func (p Page) Spans() []string {
	var spans []string
	for _, match := range span.FindAllStringSubmatch(p.Prose, -1) {
		text := strings.Join(strings.Fields(match[2]), " ")
		spans = append(spans, strings.ReplaceAll(text, `\|`, "|")) // as tables need it
	}
	return spans
}

var (
	inlineLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	bareLink   = regexp.MustCompile(`<(https?://[^>\s]+)>`)
	pictures   = regexp.MustCompile(`(?:src|href)="([^"]+)"`)
	heading    = regexp.MustCompile(`(?m)^#{1,6} +(.+?)\s*$`)
	named      = regexp.MustCompile(`<a id="([^"]+)"></a>`)
	linkText   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

// Links returns paths, anchors and addresses.
func (p Page) Links() []string {
	prose := span.ReplaceAllString(p.Prose, "")
	var links []string
	for _, kind := range []*regexp.Regexp{inlineLink, bareLink, pictures} {
		for _, match := range kind.FindAllStringSubmatch(prose, -1) {
			links = append(links, match[1])
		}
	}
	return links
}

// Anchors returns the names of the headings, as GitHub generates them, and of the anchors
// that do not change with a heading.
func (p Page) Anchors() map[string]bool {
	anchors := map[string]bool{}
	for _, match := range named.FindAllStringSubmatch(p.Prose, -1) {
		anchors[match[1]] = true
	}
	for _, match := range heading.FindAllStringSubmatch(p.Prose, -1) {
		name := anchor(match[1])
		for n, first := 1, name; anchors[name]; n++ {
			name = fmt.Sprintf("%s-%d", first, n)
		}
		anchors[name] = true
	}
	return anchors
}

func anchor(heading string) string {
	text := strings.NewReplacer("`", "", "*", "").Replace(linkText.ReplaceAllString(heading, "$1"))
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsNumber(r):
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, text)
}

// Command is one command line of a block and the output that the page shows.
type Command struct {
	At    string   // page and line
	Text  string   // without prompt
	Parts []Simple // of a pipeline or list, in order
	Shown []string // the output
}

// Simple is one program with its words.
type Simple struct {
	Assignments []string // NAME=value before the program
	Words       []string // without quotes
}

// Program is the first word, or empty if only variables are set.
func (s Simple) Program() string {
	if len(s.Words) == 0 {
		return ""
	}
	return s.Words[0]
}

// Commands returns the commands of all blocks of a page.
func (p Page) Commands() ([]Command, error) {
	var all []Command
	for _, block := range p.Blocks {
		commands, err := block.Commands()
		if err != nil {
			return nil, err
		}
		all = append(all, commands...)
	}
	return all, nil
}

// Commands returns the lines with a prompt in a console, and every line in a script.
// Other blocks have none.
func (b Block) Commands() ([]Command, error) {
	console := b.Language == "console"
	if !console && b.Language != "sh" && b.Language != "bash" {
		return nil, nil
	}
	var commands []Command
	for i := 0; i < len(b.Lines); i++ {
		text, prompt := strings.CutPrefix(b.Lines[i], "$ ")
		if console && !prompt {
			if len(commands) == 0 {
				return nil, fmt.Errorf("%s: this console begins without a command", b.At())
			}
			last := &commands[len(commands)-1]
			last.Shown = append(last.Shown, b.Lines[i])
			continue
		}
		if blank := strings.TrimSpace(text); !console && (blank == "" || strings.HasPrefix(blank, "#")) {
			continue
		}
		at := fmt.Sprintf("%s:%d", b.Page, b.Line+i)
		parts, err := Split(text)
		for errors.Is(err, errUnfinished) && i+1 < len(b.Lines) {
			i++
			text += "\n" + b.Lines[i]
			parts, err = Split(text)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		commands = append(commands, Command{At: at, Text: text, Parts: parts})
	}
	return commands, nil
}

var errUnfinished = errors.New("the command is incomplete at the end of its block")

// Split parses the parts of a shell's syntax that the pages use. It expands nothing.
func Split(line string) ([]Simple, error) {
	var parts []Simple
	var current Simple
	var word strings.Builder
	var quote rune
	var inWord, escaped bool
	endWord := func() {
		if inWord {
			current.add(word.String())
		}
		word.Reset()
		inWord = false
	}
	endPart := func() {
		endWord()
		if len(current.Words)+len(current.Assignments) > 0 {
			parts = append(parts, current)
		}
		current = Simple{}
	}
	comment := false
	for _, r := range line {
		switch {
		case comment:
			comment = r != '\n'
		case escaped:
			escaped = false
			if r != '\n' {
				word.WriteRune(r)
				inWord = true
			}
		case r == '\\' && quote != '\'':
			escaped = true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == '#' && !inWord:
			comment = true
		case strings.ContainsRune("|&;\n", r):
			endPart()
		case r == ' ' || r == '\t':
			endWord()
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 || escaped {
		return nil, errUnfinished
	}
	endPart()
	return parts, nil
}

func (s *Simple) add(word string) {
	name, _, isAssignment := strings.Cut(word, "=")
	if isAssignment && len(s.Words) == 0 && isName(name) {
		s.Assignments = append(s.Assignments, word)
		return
	}
	s.Words = append(s.Words, word)
}

func isName(word string) bool {
	for _, r := range word {
		if r != '_' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return false
		}
	}
	return word != ""
}

// changing matches values that differ between runs.
var changing = regexp.MustCompile(strings.Join([]string{
	`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`,         // ids
	`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z| ?[+-]\d\d:?\d\d)?`,   // times
	`(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT`, // Date headers
	`(?:pi|ch|re|evt|req)_\w+`,       // ids of the provider
	`ok_\w+`,                         // API keys
	`\b\d{8}-\d{6}\b`,                // in keys of playground run
	`(?:localhost|127\.0\.0\.1):\d+`, // addresses
	`\b[A-Z2-7]{26}\b`,               // request ids
	`\b\d+(?:\.\d+)?(?:ms|s| s)\b`,   // durations
}, "|"))

// Compare returns an error if an output differs from the lines that a page shows. A line
// "…" matches any lines, and "…" within a line any text. Values such as ids and times
// only need the same form.
func Compare(shown []string, output string) error {
	var pattern strings.Builder
	for _, line := range shown {
		if strings.TrimSpace(line) == "…" {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		pattern.WriteString(like(line) + `[ \t]*\n`)
	}
	output = strings.TrimRight(strings.ReplaceAll(output, "\r\n", "\n"), "\n") + "\n"
	expression, err := regexp.Compile(`\A` + strings.TrimSuffix(pattern.String(), `\n`) + `\n*\z`)
	if err != nil {
		return err
	}
	if !expression.MatchString(output) {
		for _, line := range shown {
			if found, err := regexp.MatchString("(?m)^"+like(line)+"[ \t]*$", output); strings.TrimSpace(line) != "…" && (err != nil || !found) {
				return fmt.Errorf("the page is out of date; edit it. The program prints no line like\n%s\nIt printed\n%s", line, output)
			}
		}
		return fmt.Errorf("the page and the program differ in the order or number of the lines:\n%s\nIt printed\n%s", strings.Join(shown, "\n"), output)
	}
	return nil
}

func like(line string) string {
	var pattern strings.Builder
	line = strings.TrimRight(line, " \t")
	for line != "" {
		at := changing.FindStringIndex(line)
		if at == nil {
			at = []int{len(line), len(line)}
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line[:at[0]]), "…", ".*"))
		if at[0] < at[1] {
			pattern.WriteString("(?:" + changing.String() + ")")
		}
		line = line[at[1]:]
	}
	return pattern.String()
}
