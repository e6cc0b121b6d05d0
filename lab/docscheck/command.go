package docscheck

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

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
