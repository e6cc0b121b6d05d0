package plainjson

import (
	"bytes"
	"encoding/json"
)

// Marshal is json.Marshal, but leaves <, > and & as they are, which would otherwise be
// six times as long.
func Marshal(v any) ([]byte, error) {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(encoded.Bytes(), []byte("\n")), err
}
