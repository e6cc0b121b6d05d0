package payments

import (
	"context"
	"time"
)

// SetSleep replaces the delay before a retry.
func (c *Client) SetSleep(sleep func(context.Context, time.Duration) error) { c.sleep = sleep }

// Sleep exposes sleep.
var Sleep = sleep
