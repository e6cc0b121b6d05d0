package httpjson

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Decoder reads the members of a request and collects the first hundred errors. encoding/json
// would ignore the case of names and stop at the first error.
type Decoder struct {
	members map[string]json.RawMessage
	known   []string // names that were read
	pointer string   // JSON pointer of the object
	errs    *[]Field // of the whole request
	err     error    // if the request is not a JSON object
}

// NewDecoder returns a Decoder of canonical JSON.
func NewDecoder(canonical []byte) *Decoder {
	d := &Decoder{errs: new([]Field)}
	if err := json.Unmarshal(canonical, &d.members); err != nil {
		d.err = fmt.Errorf("decode request: %w", err)
	}
	return d
}

// Err returns an [*InvalidError] if a member is missing, wrong or unknown.
func (d *Decoder) Err() error {
	d.rejectUnknown()
	if d.err == nil && !d.Valid() {
		return &InvalidError{Fields: *d.errs}
	}
	return d.err
}

// Valid reports whether there is no error so far.
func (d *Decoder) Valid() bool { return len(*d.errs) == 0 }

const maxErrors = 100

// Whether a member is required.
const (
	Required = true
	Optional = false
)

// at returns the JSON pointer of a member.
func (d *Decoder) at(name string) string { return d.pointer + "/" + escapePointer(name) }

func (d *Decoder) addError(name, code, detail string) { d.Reject(d.at(name), code, detail) }

// Reject adds an error at a JSON pointer, "" for the whole request.
func (d *Decoder) Reject(pointer, code, detail string) {
	if len(*d.errs) < maxErrors {
		*d.errs = append(*d.errs, Field{Pointer: pointer, Code: code, Detail: detail})
	}
}

// Check adds an error if the member is invalid and has none.
func (d *Decoder) Check(name string, valid bool, code, detail string) {
	hasError := slices.ContainsFunc(*d.errs, func(f Field) bool { return f.Pointer == d.at(name) })
	if !valid && !hasError {
		d.addError(name, code, detail)
	}
}

// member decodes a member, and reports false if it is absent or invalid.
func member[T any](d *Decoder, name string, must bool, kind string) (value T, ok bool) {
	d.known = append(d.known, name)
	encoded, present := d.members[name]
	switch {
	case present:
		if value, ok = decode[T](encoded); !ok {
			d.addError(name, CodeInvalidType, "must be "+kind)
		}
	case must:
		d.addError(name, CodeRequired, "is required")
	}
	return value, ok
}

func (d *Decoder) rejectUnknown() {
	for _, name := range slices.Sorted(maps.Keys(d.members)) {
		if !slices.Contains(d.known, name) {
			d.addError(name, CodeUnknownMember, "is not a known member")
		}
	}
}

// decode reports false for null and for a value of another type.
func decode[T any](value json.RawMessage) (decoded T, ok bool) {
	err := json.Unmarshal(value, &decoded)
	return decoded, err == nil && string(value) != "null"
}

// Text reads a string without control characters.
func (d *Decoder) Text(name string, must bool, minimum, maximum int) string {
	text, ok := member[string](d, name, must, "a string")
	length := utf8.RuneCountInString(text)
	switch {
	case !ok:
	case strings.ContainsFunc(text, unicode.IsControl):
		d.addError(name, CodeInvalidFormat, "must not contain control characters")
	case length < minimum:
		d.addError(name, CodeTooShort, lengthDetail(minimum, maximum))
	case length > maximum:
		d.addError(name, CodeTooLong, lengthDetail(minimum, maximum))
	}
	return text
}

func lengthDetail(minimum, maximum int) string {
	if minimum == maximum {
		return fmt.Sprintf("must be %d characters long", minimum)
	}
	return fmt.Sprintf("must be %d to %d characters long", minimum, maximum)
}

// Flag reads an optional boolean.
func (d *Decoder) Flag(name string) bool {
	set, _ := member[bool](d, name, Optional, "true or false")
	return set
}

// Integer reads an integer from minimum to maximum. 2.0 and 2e0 are 2, as in RFC 8785.
func (d *Decoder) Integer(name string, must bool, minimum, maximum int64) int64 {
	number, ok := member[float64](d, name, must, "an integer")
	switch {
	case !ok:
	case number != math.Trunc(number):
		d.addError(name, CodeInvalidType, "must be an integer")
	case number < float64(minimum) || number > float64(maximum):
		d.addError(name, CodeOutOfRange, fmt.Sprintf("must be from %d to %d", minimum, maximum))
	}
	return int64(number)
}

// Objects calls read for each object in an array of 1 to maximum objects. Members that read does not
// read are errors.
func (d *Decoder) Objects(name string, maximum int, read func(*Decoder)) {
	list, ok := member[[]json.RawMessage](d, name, Required, "an array")
	size := fmt.Sprintf("must have 1 to %d items", maximum)
	switch {
	case !ok:
		return
	case len(list) < 1:
		d.addError(name, CodeTooShort, size)
		return
	case len(list) > maximum:
		d.addError(name, CodeTooLong, size)
		return
	}
	for i, value := range list {
		object := &Decoder{pointer: d.at(name) + "/" + strconv.Itoa(i), errs: d.errs}
		if object.members, ok = decode[map[string]json.RawMessage](value); !ok {
			d.Reject(object.pointer, CodeInvalidType, "must be an object")
			continue
		}
		read(object)
		object.rejectUnknown()
	}
}

// Texts reads an optional object with up to maximum members, all of them strings.
func (d *Decoder) Texts(name string, maximum, maxName, maxText int) map[string]string {
	texts := map[string]string{}
	members, _ := member[map[string]json.RawMessage](d, name, Optional, "an object")
	if len(members) > maximum {
		d.addError(name, CodeTooLong, fmt.Sprintf("must have at most %d members", maximum))
		return texts
	}
	entries := &Decoder{pointer: d.at(name), errs: d.errs}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		text, ok := decode[string](members[key])
		switch {
		case key == "":
			entries.addError(key, CodeTooShort, "the name "+lengthDetail(1, maxName))
		case utf8.RuneCountInString(key) > maxName:
			entries.addError(key, CodeTooLong, "the name "+lengthDetail(1, maxName))
		case !ok:
			entries.addError(key, CodeInvalidType, "must be a string")
		case utf8.RuneCountInString(text) > maxText:
			entries.addError(key, CodeTooLong, lengthDetail(0, maxText))
		default:
			texts[key] = text
		}
	}
	return texts
}

const maxPointerName = 40 // characters

// escapePointer escapes a name (RFC 6901) and truncates a long one.
func escapePointer(name string) string {
	if runes := []rune(name); len(runes) > maxPointerName {
		name = string(runes[:maxPointerName]) + "…"
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
