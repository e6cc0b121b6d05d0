package main

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"example.com/orders-api/lab/measure"
)

type bench struct {
	options
	*measure.PostgreSQL
	out      io.Writer
	programs string
	systems  int
	windows  []window
}

func open(ctx context.Context, o options, out io.Writer) (*bench, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	postgres, err := measure.Start(ctx, out)
	if err != nil {
		return nil, err
	}
	return &bench{options: o, PostgreSQL: postgres, out: out, programs: filepath.Dir(executable)}, nil
}
