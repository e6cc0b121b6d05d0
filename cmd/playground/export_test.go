package main

func Main() { main() }
