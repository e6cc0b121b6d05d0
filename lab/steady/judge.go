package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// sample has the figures of one moment by name, whose last word is the unit.
type sample struct {
	figures map[string]float64
	records float64 // bytes of WAL records so far, without images
	images  float64 // bytes of WAL that are images of whole pages
	cpu     float64 // milliseconds that serve used so far
	orders  float64 // inserted so far
}

const parts = 3

// tolerance bounds what the last part may need compared with the first one, because garbage
// collections, vacuums and checkpoints make every figure vary. The slack, in the figure's unit,
// is for small values.
func tolerance(name string) (factor, slack float64) {
	switch name[strings.LastIndex(name, " ")+1:] {
	case "MiB":
		return 1.10, 2
	case "rows":
		return 1.25, 500
	case "CPU-ms", "bytes":
		return 1.25, 0
	case "ms", "image-bytes": // printed only: lab/results/README.md says why
		return math.Inf(1), 0
	default: // goroutines, descriptors or sessions
		return 1.10, 2
	}
}

// judge prints each figure of each part, and returns an error that names those that grew.
func judge(all []part, out io.Writer) error {
	var figures [parts]map[string]float64
	for i, p := range all {
		figures[i] = summarize(p)
	}
	var grown error
	for _, name := range slices.Sorted(maps.Keys(figures[0])) {
		first, last := figures[0][name], figures[parts-1][name]
		fmt.Fprintf(out, "%s  %.4g  %.4g  %.4g\n", name, first, figures[1][name], last)
		factor, slack := tolerance(name)
		if last > first*factor+slack {
			grown = errors.Join(grown, fmt.Errorf("%s grew from %.4g to %.4g", name, first, last))
		}
	}
	return grown
}

// summarize returns the mean of each figure and the counts at rest. WAL and CPU time are divided by
// the orders between the first and the last sample.
func summarize(p part) map[string]float64 {
	figures := maps.Clone(p.counts)
	for _, s := range p.samples {
		for name, value := range s.figures {
			figures[name] += value / float64(len(p.samples))
		}
	}
	if len(p.samples) > 1 {
		from, to := p.samples[0], p.samples[len(p.samples)-1]
		figures["WAL records of an order, bytes"] = (to.records - from.records) / (to.orders - from.orders)
		figures["WAL page images of an order, image-bytes"] = (to.images - from.images) / (to.orders - from.orders)
		figures["serve: CPU of an order, CPU-ms"] = (to.cpu - from.cpu) / (to.orders - from.orders)
	}
	latency := p.report.Percentiles(0.5, 0.99)
	figures["order: p50 ms"] = float64(latency[0].Microseconds()) / 1000
	figures["order: p99 ms"] = float64(latency[1].Microseconds()) / 1000
	return figures
}
