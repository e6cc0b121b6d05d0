// Command server is each Go entry: its middleware in front of the same handler, which this
// file has. Its argument is the entry.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"os"
)

func main() {
	serve := map[string]func() error{"fiber": serveFiber, "postgres-insert": servePostgresInsert}[os.Args[1]]
	log.Fatal(serve())
}

// accountOf returns the account of a request's Authorization, or "".
func accountOf(authorization string) string {
	return map[string]string{"Bearer one": "1", "Bearer uno": "1", "Bearer two": "2"}[authorization]
}

// answer is a response. Location may be empty.
type answer struct {
	Status   int
	Body     map[string]any
	Location string
}

// charge posts a request to the provider, which supplies the delay, the decline and the
// outage.
func charge(account string, body []byte) (answer, error) {
	var request map[string]any
	if err := json.Unmarshal(body, &request); err != nil {
		return failure(http.StatusBadRequest, "the body is not JSON"), nil
	}
	if amount, _ := request["amount"].(float64); amount < 1 {
		return failure(http.StatusUnprocessableEntity, "amount must be positive"), nil
	}
	request["account"] = account
	text, err := json.Marshal(request)
	if err != nil {
		return answer{}, err
	}
	response, err := http.Post(os.Getenv("PROVIDER")+"/charges", "application/json", bytes.NewReader(text))
	if err != nil {
		return answer{}, err
	}
	answered := answer{Status: response.StatusCode}
	err = json.NewDecoder(response.Body).Decode(&answered.Body)
	if id, ok := answered.Body["id"].(string); ok && answered.Status == http.StatusCreated {
		answered.Location = "/charges/" + id
	}
	return answered, errors.Join(err, response.Body.Close())
}

func failure(status int, message string) answer {
	return answer{Status: status, Body: map[string]any{"error": message}}
}
