package operations

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
// alone would ignore the case of names and stop at the first error.
type Decoder struct {
	members map[string]json.RawMessage
	known   []string      // names that were read
	pointer string        // JSON pointer of the object
	errs    *[]FieldError // of the request
	err     error         // it is not a JSON object
}

// NewDecoder returns a Decoder of canonical JSON.
func NewDecoder(canonical []byte) *Decoder {
	d := &Decoder{errs: new([]FieldError)}
	if err := json.Unmarshal(canonical, &d.members); err != nil {
		d.err = fmt.Errorf("decode request: %w", err)
	}
	return d
}

// Err returns a [*ValidationError] if a member is missing, wrong or unknown.
func (d *Decoder) Err() error {
	d.rejectUnknown()
	if d.err == nil && !d.Valid() {
		return &ValidationError{Fields: *d.errs}
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

func (d *Decoder) addError(name, code, detail string) {
	d.Reject(d.pointer+"/"+escapePointer(name), code, detail)
}

// Reject adds an error at a JSON pointer; "" is the whole request.
func (d *Decoder) Reject(pointer, code, detail string) {
	if len(*d.errs) < maxErrors {
		*d.errs = append(*d.errs, FieldError{Pointer: pointer, Code: code, Detail: detail})
	}
}

// Check adds an error unless the member is valid or already has one.
func (d *Decoder) Check(name string, valid bool, code, detail string) {
	hasError := slices.ContainsFunc(*d.errs, func(f FieldError) bool { return f.Pointer == "/"+name })
	if !valid && !hasError {
		d.addError(name, code, detail)
	}
}

func (d *Decoder) member(name string, must bool) json.RawMessage {
	d.known = append(d.known, name)
	value, ok := d.members[name]
	if !ok && must {
		d.addError(name, CodeRequired, "is required")
	}
	return value
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

// Text reads a string without control characters. The limits are in characters.
func (d *Decoder) Text(name string, must bool, minimum, maximum int) string {
	value := d.member(name, must)
	if value == nil {
		return ""
	}
	text, ok := decode[string](value)
	switch {
	case !ok:
		d.addError(name, CodeInvalidType, "must be a string")
	case strings.ContainsFunc(text, unicode.IsControl):
		d.addError(name, CodeInvalidFormat, "must not contain control characters")
	case utf8.RuneCountInString(text) < minimum:
		d.addError(name, CodeTooShort, lengthDetail(minimum, maximum))
	case utf8.RuneCountInString(text) > maximum:
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
	value := d.member(name, Optional)
	set, ok := decode[bool](value)
	if value != nil && !ok {
		d.addError(name, CodeInvalidType, "must be true or false")
	}
	return set
}

// Integer reads an integer from 1 to maximum. 2.0 and 2e0 are 2, as in RFC 8785.
func (d *Decoder) Integer(name string, must bool, maximum int64) int64 {
	value := d.member(name, must)
	if value == nil {
		return 0
	}
	number, ok := decode[float64](value)
	switch {
	case !ok || number != math.Trunc(number):
		d.addError(name, CodeInvalidType, "must be an integer")
	case number < 1 || number > float64(maximum):
		d.addError(name, CodeOutOfRange, fmt.Sprintf("must be from 1 to %d", maximum))
	}
	return int64(number)
}

// Objects reads an array of 1 to maximum objects, each with read.
func (d *Decoder) Objects(name string, maximum int, read func(*Decoder)) {
	value := d.member(name, Required)
	if value == nil {
		return
	}
	list, ok := decode[[]json.RawMessage](value)
	size := fmt.Sprintf("must have 1 to %d items", maximum)
	switch {
	case !ok:
		d.addError(name, CodeInvalidType, "must be an array")
	case len(list) < 1:
		d.addError(name, CodeTooShort, size)
	case len(list) > maximum:
		d.addError(name, CodeTooLong, size)
	default:
		for i, value := range list {
			if item := d.object(name+"/"+strconv.Itoa(i), value); item != nil {
				read(item)
				item.rejectUnknown()
			}
		}
	}
}

// Texts reads an optional object of up to maximum texts, with limits in characters.
func (d *Decoder) Texts(name string, maximum, maxName, maxText int) map[string]string {
	texts := map[string]string{}
	value := d.member(name, Optional)
	if value == nil {
		return texts
	}
	entries := d.object(name, value)
	switch {
	case entries == nil:
		return texts
	case len(entries.members) > maximum:
		d.addError(name, CodeTooLong, fmt.Sprintf("must have at most %d members", maximum))
		return texts
	}
	for _, key := range slices.Sorted(maps.Keys(entries.members)) {
		text, ok := decode[string](entries.members[key])
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

// object returns a Decoder of a nested object, or nil after an error.
func (d *Decoder) object(path string, value json.RawMessage) *Decoder {
	members, ok := decode[map[string]json.RawMessage](value)
	pointer := d.pointer + "/" + path
	if !ok {
		d.Reject(pointer, CodeInvalidType, "must be an object")
		return nil
	}
	return &Decoder{members: members, pointer: pointer, errs: d.errs}
}

const maxPointerName = 40 // characters

// escapePointer escapes a name for a JSON pointer (RFC 6901) and truncates a long one.
func escapePointer(name string) string {
	if runes := []rune(name); len(runes) > maxPointerName {
		name = string(runes[:maxPointerName]) + "…"
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
