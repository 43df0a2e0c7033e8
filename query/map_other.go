//go:build !linux && !darwin

package query

import "os"

// mapWholeFile reads a file.
func mapWholeFile(path string) (data []byte, unmap func() error, err error) {
	data, err = os.ReadFile(path)
	return data, func() error { return nil }, err
}
