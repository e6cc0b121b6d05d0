// Package docscheck parses the Markdown pages of this repository. Its tests check each
// link, each name of a file, make target, variable or test, and each command. It supports
// the parts of Markdown and of the shell that the pages use, and returns an error for
// others.
package docscheck

import (
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
