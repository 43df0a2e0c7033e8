package bench

import (
	"bufio"
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const product = "github.com/goatnote-inc/robocache"

// internalImports returns the imports of a package that are internal to the product. Go allows
// these imports, because the path of this module begins with the path of the product.
func internalImports(imports []string) []string {
	return slices.DeleteFunc(slices.Clone(imports), func(path string) bool {
		rest, ok := strings.CutPrefix(path, product+"/")
		return !ok || strings.HasPrefix(rest, "bench/") ||
			!slices.Contains(strings.Split(rest, "/"), "internal")
	})
}

// TestPublicAPIOnly rejects imports of internal packages of the product, in packages and tests of
// this module.
func TestPublicAPIOnly(t *testing.T) {
	format := `{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}`
	out, err := exec.Command("go", "list", "-f", format, "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := 0
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); packages++ {
		words := strings.Fields(lines.Text())
		if bad := internalImports(words[1:]); len(bad) > 0 {
			t.Errorf("%s imports internal packages of the product: %v", words[0], bad)
		}
	}
	if packages < 6 {
		t.Errorf("only %d packages were looked at", packages)
	}
}

func TestInternalImportsAreFound(t *testing.T) {
	for path, want := range map[string]bool{
		product + "/internal/guard":            true,
		product + "/loader/internal/order":     true,
		product + "/format/internal/h5":        true,
		product + "/bench/internal/realdata":   false,
		product + "/inspect/chart":             false,
		product:                                false,
		"golang.org/x/tools/internal/imports":  false,
		"github.com/other/robocache/internal/": false,
	} {
		if got := len(internalImports([]string{"fmt", path})) == 1; got != want {
			t.Errorf("%s: internal is %v, want %v", path, got, want)
		}
	}
}
