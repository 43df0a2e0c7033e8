// Command robocache inspects, checks, converts, edits and measures robot datasets.
package main

import (
	"os"

	"github.com/goatnote-inc/robocache/internal/cli"
)

// version is set by the linker.
var version = "unknown"

func main() { os.Exit(cli.Main(os.Args[1:], version)) }
