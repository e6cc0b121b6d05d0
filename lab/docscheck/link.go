package docscheck

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

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
