package main

// Main lets the test binary be the program.
func Main() { main() }
