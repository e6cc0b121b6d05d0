package client

import (
	"context"
	"time"
)

func (c *Client) SetSleep(sleep func(context.Context, time.Duration) error) { c.sleep = sleep }

func (c *Client) SetRandom(random func(time.Duration) time.Duration) { c.random = random }

var Sleep = sleep
