package main

func writePages(root string, all []*implementation) error { return nil }
