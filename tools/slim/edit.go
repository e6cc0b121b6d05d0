package main

import (
	"errors"
	"regexp"
	"strings"
)

// These comments enclose a section to remove, in the comment syntax of the file.
const (
	sectionBegin = "slim:begin"
	sectionEnd   = "slim:end"
)

func removeSections(text string) (string, error) {
	var kept strings.Builder
	inside := false
	for line := range strings.Lines(text) {
		switch {
		case marks(line, sectionBegin):
			if inside {
				return "", errors.New("slim:begin within a marked section")
			}
			inside = true
		case marks(line, sectionEnd):
			if !inside {
				return "", errors.New("slim:end without slim:begin")
			}
			inside = false
		case !inside:
			kept.WriteString(line)
		}
	}
	if inside {
		return "", errors.New("slim:begin without slim:end")
	}
	return kept.String(), nil
}

// marks reports whether the line is a comment that contains only the mark.
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

// removeLinks removes links to missing files. It drops a picture, and a table row or list
// item that begins with such a link. In other places the link text stays.
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
