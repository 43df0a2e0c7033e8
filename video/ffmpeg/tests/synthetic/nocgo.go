//go:build !cgo

package synthetic
