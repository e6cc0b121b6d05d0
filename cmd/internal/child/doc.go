// Package child starts programs that end with the one that started them, kills
// them and starts them again. The demo and the benchmark need that.
package child
