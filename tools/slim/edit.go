package main

import (
	"errors"
	"regexp"
	"strings"
)

// A section to remove stands between a line with sectionBegin and a line with
// sectionEnd, in a comment of the file's language.
const (
	sectionBegin = "slim:begin"
	sectionEnd   = "slim:end"
)

// removeSections returns the text without its marked sections.
func removeSections(text string) (string, error) {
	var kept strings.Builder
	inside := false
	for line := range strings.Lines(text) {
		switch {
		case marks(line, sectionBegin):
			if inside {
				return "", errors.New("a marked section begins within another")
			}
			inside = true
		case marks(line, sectionEnd):
			if !inside {
				return "", errors.New("a marked section ends that did not begin")
			}
			inside = false
		case !inside:
			kept.WriteString(line)
		}
	}
	if inside {
		return "", errors.New("a marked section does not end")
	}
	return kept.String(), nil
}

// marks reports whether the line is a comment with nothing but the mark.
func marks(line, mark string) bool {
	line = strings.TrimSpace(line)
	for _, comment := range []string{"// ", "# ", "<!-- ", "-- "} {
		if rest, ok := strings.CutPrefix(line, comment); ok {
			return strings.TrimSuffix(rest, " -->") == mark
		}
	}
	return false
}

var (
	link      = regexp.MustCompile(`!?\[([^\[\]]*)\]\(([^)\s]+)\)`)
	firstLink = regexp.MustCompile(`^(?:\| *|[-*] +)(?:\*\*)?!?\[[^\]]*\]\(([^)\s]+)\)`)
)

// removeLinks returns a page without links to files that do not exist. A table row or
// list item that begins with such a link is dropped, a picture too; elsewhere the
// text of the link stays.
func removeLinks(page string, exists func(target string) bool) string {
	gone := func(target string) bool {
		path, _, _ := strings.Cut(target, "#")
		return path != "" && !strings.Contains(path, ":") && !exists(path)
	}
	var kept strings.Builder
	for line := range strings.Lines(page) {
		if first := firstLink.FindStringSubmatch(line); first != nil && gone(first[1]) {
			continue
		}
		kept.WriteString(link.ReplaceAllStringFunc(line, func(found string) string {
			parts := link.FindStringSubmatch(found)
			switch {
			case !gone(parts[2]):
				return found
			case found[0] == '!':
				return ""
			default:
				return parts[1]
			}
		}))
	}
	return kept.String()
}
