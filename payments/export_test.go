package payments

import (
	"context"
	"time"
)

// SetPause replaces the pause before a resend.
func (c *Client) SetPause(pause func(context.Context, time.Duration) error) { c.pause = pause }

// Pause is the pause itself.
var Pause = pause
