package api

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxWait is the longest that a client may have us wait. Proxies and clients
// lose patience with a silent connection after a minute, and a wait may be
// followed by a run.
const maxWait = 30 * time.Second

// preferences are those of RFC 7240 that we know. Preferences are wishes: what
// we do not know, or cannot read, is as good as not there (section 2).
//
// No answer varies with them in a way that a cache could see, because no answer
// may be stored (Cache-Control: no-store); so there is no Vary: Prefer.
type preferences struct {
	respondAsync bool
	wait         time.Duration // 0 when there is none, at most maxWait
}

// readPreferences reads the Prefer header: any number of lines, and of
// preferences in a line. Of several with one name the first one counts.
func readPreferences(header http.Header) preferences {
	var p preferences
	seen := map[string]bool{}
	for _, line := range header.Values("Prefer") {
		for line != "" {
			var name, value string
			name, value, line = nextPreference(line)
			if name == "" || seen[name] {
				continue
			}
			seen[name] = true
			switch name {
			case "respond-async":
				p.respondAsync = value == "" // it has none
			case "wait":
				p.wait = parseWait(value)
			}
		}
	}
	return p
}

// write says which preferences were honoured: those that p has.
func (p preferences) write(header http.Header) {
	var applied []string
	if p.respondAsync {
		applied = append(applied, "respond-async")
	}
	if p.wait > 0 {
		applied = append(applied, "wait="+strconv.Itoa(int(p.wait.Seconds())))
	}
	if len(applied) > 0 {
		header.Set("Preference-Applied", strings.Join(applied, ", "))
	}
}

// parseWait reads delta-seconds. Whoever is ready to wait longer than we let
// them waits as long as we do.
func parseWait(value string) time.Duration {
	if value == "" || strings.Trim(value, "0123456789") != "" {
		return 0
	}
	seconds, err := strconv.Atoi(value)
	if err != nil || seconds > int(maxWait/time.Second) { // it is all digits, so the error is its size
		return maxWait
	}
	return time.Duration(seconds) * time.Second
}

// nextPreference takes the first preference off a line:
//
//	preference = token [ BWS "=" BWS word ] *( OWS ";" [ OWS parameter ] )
//
// The name comes in lower case, the value without its quotes; an empty value is
// the same as none. Parameters are dropped: those that we know have none. One that
// cannot be read has no name.
func nextPreference(line string) (name, value, rest string) {
	element, rest := cutUnquoted(line, ',')
	preference, _ := cutUnquoted(element, ';')
	name, value, _ = strings.Cut(preference, "=")
	name, value = strings.ToLower(strings.Trim(name, " \t")), strings.Trim(value, " \t")
	if strings.HasPrefix(value, `"`) {
		unquoted, ok := unquoteWord(value)
		if !ok {
			return "", "", rest
		}
		return validName(name), unquoted, rest
	}
	if value != "" && !isToken(value) {
		return "", "", rest
	}
	return validName(name), value, rest
}

func validName(name string) string {
	if !isToken(name) {
		return ""
	}
	return name
}

// cutUnquoted cuts s at the first sep that is not in a quoted string. A string
// that never ends takes the rest with it.
func cutUnquoted(s string, sep byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\' && quoted:
			i++
		case s[i] == sep && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// unquoteWord reads a quoted-string of RFC 9110, which may escape any character.
func unquoteWord(s string) (string, bool) {
	var out strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return out.String(), i == len(s)-1
		case '\\':
			if i++; i == len(s) {
				return "", false
			}
		}
		out.WriteByte(s[i])
	}
	return "", false
}

// isToken says whether s is a token of RFC 9110.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20
		if (c < 'a' || c > 'z') && (s[i] < '0' || s[i] > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(s[i])) {
			return false
		}
	}
	return s != ""
}
