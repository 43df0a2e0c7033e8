//go:build !linux || nocuda

package gpu

import "errors"

func openLibrary(string) (uintptr, error) {
	return 0, errors.New(
		"this build opens no library at run time: it is not for Linux, or was made with the tag " +
			"nocuda",
	)
}

func bindSymbol(uintptr, string, any) {}
