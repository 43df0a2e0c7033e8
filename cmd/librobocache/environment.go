package main

// #include <stdint.h>
import "C"

import (
	"os"
	"strings"
)

// robocache_environment updates the environment of the library, because the Go runtime copies the
// environment when the process starts. changes holds "NAME=VALUE" for a variable that is set and
// "NAME" for a variable that is removed. Each entry ends with a NUL. Values are never logged.
//
//export robocache_environment
func robocache_environment(changes *C.char, size C.int32_t) {
	applyEnvironment(C.GoStringN(changes, C.int(size)))
}

func applyEnvironment(changes string) {
	for entry := range strings.SplitSeq(changes, "\x00") {
		name, value, isSet := strings.Cut(entry, "=")
		switch current, known := os.LookupEnv(name); {
		case name == "":
		case isSet && (!known || current != value):
			// The system rejects only names that cannot be in an environment, so the error is
			// ignored.
			_ = os.Setenv(name, value)
		case !isSet && known:
			_ = os.Unsetenv(name)
		}
	}
}
