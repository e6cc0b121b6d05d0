package main

// Main runs the program, for the test binary.
func Main() { main() }

// DevFolderName names the data of dev, for its test.
func DevFolderName(module, working string) string { return devFolderName(module, working) }
