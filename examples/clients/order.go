// Command clients sends the JSON in FILE exactly once. FILE.key stores the key.
//
//	go run . /v1/orders order-77.json
//	go run . /v1/orders/ORDER_ID/cancel cancel-9.json
//
// After a crash, or to correct FILE, run it again: the key stays.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"example.com/orders-api/client"
)

// storedKey returns the key of a request, and creates it at the first call. The key is on disk
// before anything is sent.
func storedKey(file string) (client.Key, error) {
	folder, err := os.Open(filepath.Dir(file))
	if err != nil {
		return "", err
	}
	defer func() { _ = folder.Close() }()
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		if err := createKey(file); err != nil {
			return "", err
		}
	}
	// Always sync, because the run that created the key may have stopped before its sync.
	if err := folder.Sync(); err != nil {
		return "", err
	}
	key, err := os.ReadFile(file)
	return client.Key(key), err
}

func createKey(file string) error {
	unfinished, err := os.CreateTemp(filepath.Dir(file), "key")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(unfinished.Name()) }()
	_, err = unfinished.WriteString(string(client.NewKey()))
	if err := errors.Join(err, unfinished.Sync(), unfinished.Close()); err != nil {
		return err
	}
	// Unlike a rename, a link does not replace the key that another run has created.
	err = os.Link(unfinished.Name(), file)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

func send(ctx context.Context, path, file string) (status int, err error) {
	key, err := storedKey(file + ".key")
	if err != nil {
		return 1, err
	}
	body, err := os.ReadFile(file)
	if err != nil {
		return 1, err
	}
	orders, err := client.New(client.Config{BaseURL: os.Getenv("ORDERS_URL"), APIKey: os.Getenv("ORDERS_API_KEY")})
	if err != nil {
		return 1, err
	}
	defer orders.Close()
	request := client.Request{Key: key, Path: path, Body: body}
	if strings.HasSuffix(path, "/cancel") {
		request.Success = http.StatusOK // a cancel creates nothing
	}
	response, err := orders.Do(ctx, request)
	var action *client.ActionRequiredError
	var problem *client.Problem
	switch {
	case errors.As(err, &action):
		return 3, fmt.Errorf("the customer must approve %s; then run this again", action.Action.PaymentIntentID)
	case errors.As(err, &problem) && problem.Retry == client.RetryNewKey:
		return 1, fmt.Errorf("final, the key is used; another card needs another FILE: %w", err)
	case err != nil: // rejected, or the outcome is unknown
		return 1, fmt.Errorf("an earlier attempt may have succeeded, keep the key: %w", err)
	}
	fmt.Println(string(response.Body))
	return 0, nil
}

func main() {
	status, err := send(context.Background(), os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}
