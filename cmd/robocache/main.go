// Command robocache looks at, checks, converts, makes and measures robot datasets.
package main

import (
	"os"

	"github.com/goatnote-inc/robocache/internal/cli"
)

// version is set by the build.
var version = "unknown"

func main() { os.Exit(cli.Main(os.Args[1:], version)) }
