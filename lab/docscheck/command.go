package docscheck

import (
	"errors"
	"fmt"
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
