// Package earlierdesigns implements two common designs that charge a customer twice after certain
// faults. The console compares them with this service. Do not use them.
package earlierdesigns
