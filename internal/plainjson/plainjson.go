package plainjson

import (
	"bytes"
	"encoding/json"
)

// Marshal is json.Marshal without the escaping of <, > and &, which would make a text
// six times as long.
func Marshal(v any) ([]byte, error) {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(encoded.Bytes(), []byte("\n")), err
}
