package payments

import (
	"context"
	"time"
)

func (c *Client) SetSleep(sleep func(context.Context, time.Duration) error) { c.sleep = sleep }

var Sleep = sleep
