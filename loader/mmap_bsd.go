//go:build unix && !linux

package loader

func adviseHuge([]byte) {}
