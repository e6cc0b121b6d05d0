package main

func Main() { main() }

func DevFolderName(module, working string) string { return devFolderName(module, working) }
