package load

import (
	"fmt"
	"net"
	"time"

	"github.com/valyala/fasthttp"
)

// Client sends orders to one server. It takes half of the CPU time of net/http's client,
// because no goroutine serves its connections. The rest is left to the server, since both
// share the cores.
type Client struct {
	http   fasthttp.HostClient
	url    string
	bearer string
}

// Response is what the measurements need of a response.
type Response struct {
	Status   int
	Replayed bool
}

// NewClient returns a client of the server at address, such as 127.0.0.1:8080.
func NewClient(address, apiKey string) *Client {
	return &Client{
		http: fasthttp.HostClient{
			Addr:                address,
			Dial:                func(address string) (net.Conn, error) { return net.Dial("tcp", address) }, //nolint:noctx // of loopback
			MaxConns:            20_000,
			MaxIdleConnDuration: time.Minute,
			ReadTimeout:         time.Minute,
			// A lost response is an error of the measurement.
			MaxIdemponentCallAttempts: 1,
		},
		url:    "http://" + address + "/v1/orders",
		bearer: "Bearer " + apiKey,
	}
}

// CreateOrder sends POST /v1/orders. An error means that there is no complete response.
func (c *Client) CreateOrder(key string, body []byte) (Response, error) {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	request.SetRequestURI(c.url)
	request.Header.SetMethod(fasthttp.MethodPost)
	request.Header.SetContentType("application/json")
	request.Header.Set("Authorization", c.bearer)
	request.Header.Set("Accept", "application/json, application/problem+json")
	request.Header.Set("Idempotency-Key", key)
	request.SetBodyRaw(body)
	if err := c.http.Do(request, response); err != nil {
		return Response{}, fmt.Errorf("POST /v1/orders: %w", err)
	}
	return Response{
		Status:   response.StatusCode(),
		Replayed: string(response.Header.Peek("Idempotent-Replayed")) == "true",
	}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }
