// Package postgres configures database sessions and classifies the driver's errors.
package postgres
