//go:build !amd64 || purego

package calvin

func channelsFast(_, _ []byte, _, _ int) int { return 0 }
