//go:build !race

package loader

const raced = false
