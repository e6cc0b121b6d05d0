package docscheck_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/orders-api/tools/programtest"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "curl" {
		if err := beCurl(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "curl:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(programtest.Main{M: m}.Run())
}

// beCurl implements the part of curl that our pages use, for machines without curl. It
// rejects any other flag.
func beCurl(args []string) error {
	var c curlCall
	if err := c.parse(args); err != nil {
		return err
	}
	return c.send()
}

// curlCall is one invocation of curl.
type curlCall struct {
	showHeader      bool
	method, address string
	header          http.Header
	body, kind      string // the body and its default Content-Type
}

func (c *curlCall) parse(args []string) error {
	c.header = http.Header{}
	value := func() (v string) {
		if len(args) > 0 {
			v, args = args[0], args[1:]
		}
		return v
	}
	for len(args) > 0 {
		switch arg := value(); {
		case arg == "-i":
			c.showHeader = true
		case arg == "-s" || arg == "-sS":
		case arg == "-X":
			c.method = value()
		case arg == "-H":
			name, content, _ := strings.Cut(value(), ":")
			c.header.Add(name, strings.TrimSpace(content))
		case arg == "-d":
			c.body, c.kind = value(), "application/x-www-form-urlencoded"
		case arg == "--json":
			c.body, c.kind = value(), "application/json"
		case strings.HasPrefix(arg, "-") || c.address != "":
			return fmt.Errorf("%q is not supported", arg)
		default:
			c.address = arg
		}
	}
	return nil
}

func (c *curlCall) send() error {
	if c.kind != "" && c.method == "" {
		c.method = http.MethodPost
	}
	request, err := http.NewRequest(c.method, c.address, strings.NewReader(c.body))
	if err != nil {
		return err
	}
	request.Header = c.header
	if c.kind != "" && c.header.Get("Content-Type") == "" {
		c.header.Set("Content-Type", c.kind)
	}
	client := http.Client{Timeout: programtest.Timeout}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if c.showHeader {
		fmt.Printf("%s %s\r\n", response.Proto, response.Status)
		if err := response.Header.Write(os.Stdout); err != nil {
			return err
		}
		fmt.Print("\r\n")
	}
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}
