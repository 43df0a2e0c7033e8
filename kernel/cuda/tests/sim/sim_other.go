//go:build !linux

package sim
