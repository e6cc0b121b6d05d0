// Command events receives the API's events at http://127.0.0.1:9000/events and prints those that are
// verified. EVENTS_SECRET is that of the API: the signing secret or, while it is rotated, two with a comma between.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"example.com/orders-api/client"
)

func receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	var event client.Event
	if err == nil {
		event, err = client.VerifyEvent(strings.Split(os.Getenv("EVENTS_SECRET"), ","), r.Header, body, time.Now())
	}
	if err != nil {
		fmt.Println("rejected:", err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	// A shop stores the event here, responds, and reads the order afterwards.
	fmt.Println("verified:", event.Type, "of order", event.Data.OrderID)
	w.WriteHeader(http.StatusNoContent)
}

func main() {
	http.HandleFunc("POST /events", receive)
	server := &http.Server{Addr: "127.0.0.1:9000", ReadHeaderTimeout: 5 * time.Second}
	fmt.Println(server.ListenAndServe())
}
