package main

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"

	"example.com/orders-api/internal/embeddedpg"
)

// devFolder returns the folder for the data of dev. Each clone and each renamed project
// has its own.
func devFolder() (string, error) {
	working, err := os.Getwd()
	if err == nil {
		working, err = filepath.EvalSymlinks(working)
	}
	if err != nil {
		return "", fmt.Errorf("find the working directory, which names the data of dev: %w", err)
	}
	module := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Path
	}
	return embeddedpg.CacheDir("dev", devFolderName(cmp.Or(module, "orders"), working))
}

// devFolderName returns a name for a module and the folder of its clone, which is the
// nearest parent of the working directory with a go.mod.
func devFolderName(module, working string) string {
	clone := working
	for dir := working; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			clone = dir
			break
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	sum := sha256.Sum256([]byte(module + "\n" + clone))
	return fmt.Sprintf("%s-%x", path.Base(module), sum[:4])
}
