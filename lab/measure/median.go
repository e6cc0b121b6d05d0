package measure

import "slices"

// Median returns the median of what get returns.
func Median[T any](all []T, get func(T) float64) float64 {
	values := make([]float64, len(all))
	for i, v := range all {
		values[i] = get(v)
	}
	slices.Sort(values)
	return (values[len(values)/2] + values[(len(values)-1)/2]) / 2
}
