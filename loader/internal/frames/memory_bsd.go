//go:build unix && !linux

package frames

func adviseHuge([]byte) {}
