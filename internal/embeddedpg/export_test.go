package embeddedpg

import "context"

// Sweep removes the abandoned folders below parent, as the start of a server does.
func Sweep(ctx context.Context, parent string) error {
	own, err := newFolder(ctx, parent)
	if err != nil {
		return err
	}
	return own.release()
}
