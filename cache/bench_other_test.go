//go:build !linux

package cache

import "os"

func forgetPages(*os.File) {}
