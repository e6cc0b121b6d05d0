package devservices

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strings"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/internal/embeddedpg"
)

// Folder returns the folder for the data of dev. Each clone and each renamed project
// has its own. So has each provider, because the others do not know its payments.
func Folder(stripe boot.Stripe) (string, error) {
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
	provider := "" // the stand-in
	if stripe.SecretKey != "" {
		provider = stripe.ProviderURL()
	}
	return embeddedpg.CacheDir("dev", folderName(cmp.Or(module, "orders"), working, provider))
}

// folderName returns a name for a module, the folder of its clone, and a provider. The
// clone is the nearest parent of the working directory with a go.mod.
func folderName(module, working, provider string) string {
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
	sum := sha256.Sum256([]byte(strings.Join([]string{module, clone, provider}, "\n")))
	return fmt.Sprintf("%s-%x", path.Base(module), sum[:4])
}
