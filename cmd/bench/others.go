package main

import (
	"context"
	"errors"
)

func (b *bench) slowProvider(ctx context.Context) error { return errors.ErrUnsupported }
func (b *bench) processes(ctx context.Context) error    { return errors.ErrUnsupported }
