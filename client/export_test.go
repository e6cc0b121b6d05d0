package client

import (
	"context"
	"time"
)

// SetSleep replaces the delays of c.
func (c *Client) SetSleep(sleep func(context.Context, time.Duration) error) { c.sleep = sleep }

// SetRandom replaces the jitter of c.
func (c *Client) SetRandom(random func(time.Duration) time.Duration) { c.random = random }

// Sleep is the default of SetSleep.
func Sleep(ctx context.Context, wait time.Duration) error { return sleep(ctx, wait) }
