// Package subprocess starts programs that end with the process that started them,
// kills them and starts them again. The demo, the console and the benchmark use it.
package subprocess
