package payments

import (
	"context"
	"time"
)

// SetSleep replaces the wait before a retry.
func (c *Client) SetSleep(sleep func(context.Context, time.Duration) error) { c.sleep = sleep }

// Sleep is sleep.
var Sleep = sleep
