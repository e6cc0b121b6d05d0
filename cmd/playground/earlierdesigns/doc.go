// Package earlierdesigns has two common designs that charge a customer twice after certain
// faults. The console runs them beside this service. Do not use them.
package earlierdesigns
