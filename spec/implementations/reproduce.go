package main

import "context"

func reproduce(ctx context.Context, root string, b *bench, script string) error { return nil }
